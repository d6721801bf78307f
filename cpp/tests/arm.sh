#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the NEON target on a machine that is not ARM: cpp/tests/arm.sh [arguments of parity]. Cross-compiles the core
# and its tests for AArch64 into build/arm and runs them under qemu. Where tools are missing it says so and succeeds.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/build/arm
compiler=${ARM_CXX:-aarch64-linux-gnu-g++}
c_compiler=${ARM_CC:-aarch64-linux-gnu-gcc}
qemu=${ARM_QEMU:-qemu-aarch64}
# The project's own environment has the cmake and ninja that the build asks for.
PATH=$root/.venv/bin:$PATH

for tool in "$compiler" "$c_compiler" "$qemu" cmake ninja; do
  if ! command -v "$tool" >/dev/null; then
    echo "NEON was not checked: $tool is missing."
    echo "On Debian and Ubuntu: apt install g++-aarch64-linux-gnu qemu-user; cmake and ninja come with make setup."
    exit 0
  fi
done

cmake -S "$here" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_C_COMPILER="$c_compiler" \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_EXE_LINKER_FLAGS=-static \
  -DHEADRACE_JPEG=OFF >/dev/null
cmake --build "$build" -j 2
"$qemu" -L /usr/aarch64-linux-gnu "$build/tests/operations"
"$qemu" -L /usr/aarch64-linux-gnu "$build/tests/program"
"$qemu" -L /usr/aarch64-linux-gnu "$build/tests/pixels" 1 100
"$qemu" -L /usr/aarch64-linux-gnu "$build/tests/png"
"$qemu" -L /usr/aarch64-linux-gnu "$build/tests/parity" "$@"
