#!/usr/bin/env bash
# Makes sure of what pip cannot install: a compiler, Python.h, venv and, with the
# argument `tests`, gtest. Installs it where that is possible without a password,
# else says in one sentence what to install.
#
# Usage: tools/system_packages.sh PYTHON [tests]
set -euo pipefail
python=$1
missing=()
command -v "${CXX:-c++}" >/dev/null || missing+=(g++)
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
header=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
[ -e "$header/Python.h" ] || missing+=(python3-dev)
if [ "${2:-}" = tests ]; then
  echo '#include <gtest/gtest.h>' |
    "${CXX:-c++}" -x c++ -E - >/dev/null 2>&1 || missing+=(libgtest-dev)
fi
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  echo "==> apt-get install ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  if { apt-get update -q && apt-get install -q -y "${missing[@]}"; } \
    >"$log" 2>&1 </dev/null; then
    rm -f "$log"
    exit 0
  fi
  tail -n 20 "$log" >&2
fi
echo "Missing on this machine: ${missing[*]}. First run:" \
  "sudo apt-get install ${missing[*]} (or your system's way to get them)." >&2
exit 1
