// SPDX-License-Identifier: Apache-2.0
// Runs all programs of a grid, one after the other, forwards or backwards; included behind the translated kernel.
#pragma once

static void forget(Cell* cells, s64 count) {
  const Cell fresh = {.write_program = NOBODY, .read_program = NOBODY, .atomic_program = NOBODY};
  for (s64 i = 0; i < count; i++) cells[i] = fresh;
}

s64 cell_bytes(void) { return sizeof(Cell); }

// Programs that have found something do not stop the ones behind them, unless it ends the run.
void run_kernel(const s32* extents, const u64* arguments, const Range* allowed, s64 n_allowed, int backwards, u8 fill,
                Report* into) {
  ranges = allowed, n_ranges = n_allowed, report = into;
  memcpy(grid, extents, sizeof grid);
  for (s64 i = 0; i < n_allowed; i++)
    if (allowed[i].writable) forget(allowed[i].cells, allowed[i].end - allowed[i].begin);
  s64 count = (s64)grid[0] * grid[1] * grid[2];
  for (s64 k = 0; k < count; k++) {
    number = backwards ? count - 1 - k : k;
    program[0] = number % grid[0], program[1] = number / grid[0] % grid[1], program[2] = number / grid[0] / grid[1];
    interval = 0;
    memset(warp_interval, 0, sizeof warp_interval);
    memset(shared_memory, fill, sizeof shared_memory);
    memset(local_memory, fill, sizeof local_memory);
    forget(shared_cells, SHARED_BYTES);
    run_program(arguments);
    if (report->n_found > 1000) return;
  }
}
