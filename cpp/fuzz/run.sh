#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the codec under ASan and UBSan: cpp/fuzz/run.sh [seconds]. Seeds come from cpp/fuzz/corpus; what the run learns and finds is
# kept in build/fuzz, and a finding makes the exit code non-zero. With clang it runs on libFuzzer, otherwise on driver.cpp.
set -eu

seconds=${1:-180}
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
  cmake -S "$here" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$clang" -DHEADRACE_LIBFUZZER=ON >/dev/null
else
  build=$out/driver
  cmake -S "$here" -B "$build" -G Ninja >/dev/null
fi
cmake --build "$build" -j 2

# Small quarantines, and no memory given back: an execution frees little, and touching new pages costs more than half of the speed.
export ASAN_OPTIONS=${ASAN_OPTIONS:-quarantine_size_mb=4:allocator_release_to_os_interval_ms=-1:handle_abort=1:detect_leaks=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
# A task has a corpus of its own: in one they would starve each other, as a round trip covers more code and takes ten times as long.
fuzz() {
  task=$1 seconds=$2
  mkdir -p "$out/corpus/$task"
  if [ -z "$clang" ]; then
    "$build/headrace_fuzz" -seconds="$seconds" -seed="$(date +%s)" -artifact_prefix="$out/findings/$task-" \
      "$here/corpus/$task" | sed "s/^/$task: /"
    return
  fi
  if ! "$build/headrace_fuzz" -max_total_time="$seconds" -max_len=4096 -rss_limit_mb=2048 -timeout=10 -reload=0 -entropic=0 \
    -artifact_prefix="$out/findings/$task-" -print_final_stats=1 \
    "$out/corpus/$task" "$here/corpus/$task" >"$out/$task.log" 2>&1; then
    tail -n 60 "$out/$task.log"
    echo "$task: a finding, kept in $out/findings" >&2
    exit 1
  fi
  sed -n "s/^stat::number_of_executed_units: *\([0-9]*\)$/$task: \1 executions/p" "$out/$task.log"
}

fuzz decode $((seconds * 3 / 4))
fuzz round_trip $((seconds / 4))
