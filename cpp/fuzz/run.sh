#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the codec, the PNG decoder, transforms, the loading engine, datasets and exchange folders under ASan and UBSan:
#   cpp/fuzz/run.sh [seconds [runs]]
# `seconds` are shared among the tasks. `runs` is how many forged datasets there are at least, whatever the time: 96 % of them as
# index rows for the engine (loading.cpp), the others as files on disk (tests/adversarial/fuzz.py).
# Seeds come from cpp/fuzz/corpus; what the run learns and finds is kept in build/fuzz, and a finding makes the exit code non-zero.
# With clang it runs on libFuzzer, otherwise on driver.cpp.
set -eu

seconds=${1:-180}
runs=${2:-0}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$root/build/fuzz
# The project's own environment has the cmake and ninja that the build asks for.
PATH=$root/.venv/bin:$PATH
mkdir -p "$out/findings"

# The first clang++ that can link libFuzzer; Debian packages its runtime apart.
find_clang() {
  for name in clang++ $(seq 25 -1 14 | sed 's/^/clang++-/'); do
    command -v "$name" >/dev/null || continue
    if echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
      "$name" -x c++ -fsanitize=fuzzer,address -o "$out/probe" - 2>/dev/null; then
      echo "$name"
      return
    fi
  done
}

clang=$(find_clang)
if [ -n "$clang" ]; then
  build=$out/libfuzzer
  cmake -S "$here" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$clang" -DCMAKE_C_COMPILER="$(echo "$clang" | sed 's/clang++/clang/')" -DHEADRACE_LIBFUZZER=ON >/dev/null
else
  build=$out/driver
  cmake -S "$here" -B "$build" -G Ninja >/dev/null
fi
cmake --build "$build" -j 2

# Small quarantines, and no memory given back: an execution frees little, and touching new pages costs more than half of the speed.
# What the core cannot allocate it reports: a null pointer is an answer.
asan=quarantine_size_mb=4:allocator_release_to_os_interval_ms=-1:handle_abort=1:detect_leaks=0:allocator_may_return_null=1
export ASAN_OPTIONS=${ASAN_OPTIONS:-$asan}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

# A task has a corpus of its own: in one they would starve each other, as a round trip covers more code and takes ten times as long.
fuzz() {
  task=$1 target=$2 task_seconds=$3 task_runs=$4
  mkdir -p "$out/corpus/$task"
  if [ -z "$clang" ]; then
    "$build/$target" -seconds="$task_seconds" -runs="$task_runs" -seed="$(date +%s)" -artifact_prefix="$out/findings/$task-" \
      "$here/corpus/$task" >"$out/$task.log" 2>&1 || finding "$task"
    sed -n "s/^\([0-9]* executions\)$/$task: \1/p" "$out/$task.log"
    return
  fi
  # libFuzzer's time limit counts waiting for the CPU too; loading.cpp limits the CPU time of a run to 5 s by itself.
  limit="-max_total_time=$task_seconds"
  [ "$task_runs" -gt 0 ] && limit="-runs=$task_runs"
  "$build/$target" "$limit" -max_len=4096 -rss_limit_mb=2048 -timeout=120 -reload=0 -entropic=0 \
    -artifact_prefix="$out/findings/$task-" -print_final_stats=1 \
    "$out/corpus/$task" "$here/corpus/$task" >"$out/$task.log" 2>&1 || finding "$task"
  sed -n "s/^stat::number_of_executed_units: *\([0-9]*\)$/$task: \1 executions/p" "$out/$task.log"
}

finding() {
  tail -n 60 "$out/$1.log"
  echo "$1: a finding, kept in $out/findings" >&2
  exit 1
}

# Python with a core that has the sanitizers, in a package beside the editable one.
fuzz_datasets() {
  task_seconds=$1 task_runs=$2
  compiler=$(command -v "${CXX:-g++}")
  cmake -S "$root" -B "$out/extension" -G Ninja -DSKBUILD=ON -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_CXX_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1" \
    -DCMAKE_C_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1" \
    -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DPython_EXECUTABLE="$root/.venv/bin/python" \
    -Dnanobind_DIR="$(python -m nanobind --cmake_dir)" >/dev/null
  cmake --build "$out/extension" -j 2
  rm -rf "$out/package"
  mkdir -p "$out/package"
  cp -r "$root/src/headrace" "$out/package/"
  cp "$out"/extension/_core*.so "$out/package/headrace/"
  preload=
  for library in libasan.so libubsan.so libstdc++.so; do preload="$preload $("$compiler" -print-file-name=$library)"; done
  (
    cd "$root"
    # Python allocates with one function and frees with another; that is its own affair.
    export ASAN_OPTIONS="$ASAN_OPTIONS:alloc_dealloc_mismatch=0" HEADRACE_FUZZ_PACKAGE="$out/package"
    LD_PRELOAD=$preload python -m tests.adversarial.fuzz --seconds "$task_seconds" --runs "$task_runs" --out "$out/findings"
  )
}

fuzz decode headrace_fuzz $((seconds * 2 / 10)) 0
fuzz png headrace_fuzz_png $((seconds / 10)) 0
fuzz transforms headrace_fuzz_transforms $((seconds / 10)) 0
fuzz round_trip headrace_fuzz $((seconds / 10)) 0
fuzz loading headrace_fuzz_loading $((seconds * 2 / 10)) $((runs * 96 / 100))
fuzz_datasets $((seconds * 3 / 10)) $((runs * 4 / 100))
