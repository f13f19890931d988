"""Runs the C++ tests and says how many passed, or shows what failed.

A run that does not end in time shows the stacks of all threads (with gdb, where it
is installed) and the test that it hung in, and fails.

Usage: run_cpp_tests.py LOG SECONDS PROGRAM [ARGUMENTS]
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys


def stacks(group: int) -> str:
    """The stacks of all threads of a process group."""
    if shutil.which("gdb") is None:
        return "(no gdb here, so no stacks)"
    shown = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            in_group = os.getpgid(int(stat.parent.name)) == group
        except ProcessLookupError:
            continue
        if in_group:
            command = ["gdb", "-p", stat.parent.name, "-batch"]
            command += ["-ex", "thread apply all bt"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            lines = re.findall(r"^(?:Thread|#).*", done.stdout, re.M)
            shown += [f"--- process {stat.parent.name}", *lines]
    return "\n".join(shown)


def main(log: str, seconds: str, *command: str) -> int:
    """Returns the exit status."""
    hung = ""
    with open(log, "w") as out:
        # In a group of its own, so that forked children end with it.
        tests = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            tests.wait(float(seconds))
        except subprocess.TimeoutExpired:
            hung = stacks(tests.pid)
        finally:
            if tests.poll() is None:
                os.killpg(tests.pid, signal.SIGKILL)
                tests.wait()
    text = pathlib.Path(log).read_text(errors="replace")
    passed = re.search(r"^\[  PASSED  \] (\d+) tests?\.$", text, re.M)
    if tests.returncode == 0 and passed and passed[1] != "0":
        print(f"{passed[1]} C++ tests passed")
        return 0
    # What passed is not of interest.
    one_passed = r"^\[ RUN      \] (\S+)\n(?:(?!\[ RUN).*\n)*?\[       OK \] \1 .*\n"
    text = re.sub(one_passed, "", text, flags=re.M)
    print(text, file=sys.stderr)
    if hung:
        print(f"{hung}\nThe tests were not done after {seconds} s.", file=sys.stderr)
    print(f"The C++ tests failed (exit status {tests.returncode}).", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
