#!/usr/bin/env bash
# tools/build_horovod.sh PYTHON FOLDER: Horovod 0.28.1 with Gloo for the TensorFlow of
# that Python, into FOLDER, for the benchmarks only. Its XLA operations do not compile
# with TensorFlow 2.21 and are left out.
set -euo pipefail
python=$1 folder=$2
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
"$python" -m pip download -q --disable-pip-version-check --no-deps \
  --no-build-isolation --no-binary :all: -d "$build" horovod==0.28.1
tar -xf "$build"/horovod-0.28.1.tar.gz -C "$build"
sed -i '/xla_mpi_ops.cc/d' "$build"/horovod-0.28.1/horovod/tensorflow/CMakeLists.txt
PATH="$(cd "$(dirname "$python")" && pwd):$PATH" \
  HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 \
  HOROVOD_WITHOUT_MPI=1 HOROVOD_WITH_GLOO=1 HOROVOD_CPU_OPERATIONS=GLOO \
  CMAKE_POLICY_VERSION_MINIMUM=3.5 MAKEFLAGS="-j$(nproc)" \
  "$python" -m pip install -q --disable-pip-version-check --no-deps \
  --no-build-isolation --upgrade --target "$folder" "$build"/horovod-0.28.1
# What it imports.
"$python" -m pip install -q --disable-pip-version-check --upgrade --target "$folder" \
  cloudpickle psutil pyyaml
