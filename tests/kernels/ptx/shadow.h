// SPDX-License-Identifier: Apache-2.0
// Shadow memory: for each byte who wrote it, who read it and when, so that each access can be judged.
//
// An access must lie within one range of a tensor, be aligned to its size, and not conflict with another thread's: two
// accesses to a byte conflict if one of them writes and nothing orders them. Within a program a barrier orders what lies
// before it and behind it; within a warp bar.warp.sync does too. Nothing orders two programs of a launch. Two writes of
// the same value do not conflict: Triton lets threads that hold the same element store it. Atomic operations conflict
// with plain accesses only.
//
// READ ME FIRST: an interval is the time between two barriers. Cells remember only the last interval, which is enough:
// what lies further back is ordered before everything that comes now.
#pragma once

enum { OUT_OF_BOUNDS, MISALIGNED, READ_ONLY, RACE_IN_PROGRAM, RACE_BETWEEN_PROGRAMS, RACE_IN_SHARED, DIVERGENT, PARTIAL_WARP };
enum { NOBODY = -1, SEVERAL = -2, KEPT_FINDINGS = 16 };

typedef struct {
  s32 write_program, read_program, atomic_program;
  u32 write_interval, read_interval;  // of the program
  u32 write_warp_interval, read_warp_interval;
  u32 read_warps;  // a bit for each warp that read it in the interval
  s16 writer, reader;
  u8 value, read_by_others, unused[2];  // the value written; whether programs before the last reader read it
} Cell;

typedef struct {
  u64 begin, end;
  Cell* cells;
  s64 writable;
} Range;

typedef struct {
  s64 kind, line, program, thread, other, address;
} Finding;

typedef struct {
  s64 n_found;
  Finding findings[KEPT_FINDINGS];
} Report;

static const Range* ranges;
static s64 n_ranges;
static Report* report;
static s32 number, grid[3], program[3];  // of the program that runs: in all, and along each axis
static u32 interval, warp_interval[WARPS];
static Cell shared_cells[SHARED_BYTES];
static u8 shared_memory[SHARED_BYTES] __attribute__((aligned(16)));
static u8 local_memory[THREADS][LOCAL_BYTES];

static void found(int kind, int line, int thread, int other, u64 address) {
  if (report->n_found < KEPT_FINDINGS)
    report->findings[report->n_found] = (Finding){kind, line, number, thread, other, (s64)address};
  report->n_found++;
}

// Whether an access of this program's interval by `other` comes at the same time as one by `thread`.
static inline int at_once(int thread, int other, u32 warp_interval_of_other) {
  if (other == thread) return 0;
  return other / 32 != thread / 32 || warp_interval_of_other == warp_interval[thread / 32];
}

static inline void note_read(Cell* cell, int thread, int line, u64 address, int shared) {
  int within = shared ? RACE_IN_SHARED : RACE_IN_PROGRAM, warp = thread / 32;
  if (cell->write_program == number) {
    if (cell->write_interval == interval && at_once(thread, cell->writer, cell->write_warp_interval))
      found(within, line, thread, cell->writer, address);
  } else if (cell->write_program != NOBODY) {
    found(RACE_BETWEEN_PROGRAMS, line, thread, cell->write_program, address);
  }
  if (cell->atomic_program != NOBODY) found(RACE_BETWEEN_PROGRAMS, line, thread, cell->atomic_program, address);
  if (cell->read_program != number) {
    cell->read_by_others |= cell->read_program != NOBODY;
    cell->read_warps = 0;
  } else if (cell->read_interval != interval) {
    cell->read_warps = 0;
  } else if (cell->read_warps == 1u << warp && cell->read_warp_interval != warp_interval[warp]) {
    cell->read_warps = 0;
  }
  cell->reader = cell->read_warps == 0 || cell->reader == thread ? thread : SEVERAL;
  cell->read_warps |= 1u << warp;
  cell->read_program = number;
  cell->read_interval = interval;
  cell->read_warp_interval = warp_interval[warp];
}

static inline void note_write(Cell* cell, int thread, int line, u64 address, int shared, u8 value) {
  int within = shared ? RACE_IN_SHARED : RACE_IN_PROGRAM, warp = thread / 32;
  if (cell->write_program == number) {
    if (cell->write_interval == interval && cell->value != value &&
        at_once(thread, cell->writer, cell->write_warp_interval))
      found(within, line, thread, cell->writer, address);
  } else if (cell->write_program != NOBODY && cell->value != value) {
    found(RACE_BETWEEN_PROGRAMS, line, thread, cell->write_program, address);
  }
  if (cell->read_program == number) {
    int other_warps = (cell->read_warps & ~(1u << warp)) != 0;
    int same_warp = cell->reader != thread && cell->read_warp_interval == warp_interval[warp];
    if (cell->read_interval == interval && (other_warps || same_warp)) found(within, line, thread, cell->reader, address);
  }
  if (cell->read_by_others || (cell->read_program != number && cell->read_program != NOBODY))
    found(RACE_BETWEEN_PROGRAMS, line, thread, cell->read_program, address);
  if (cell->atomic_program != NOBODY) found(RACE_BETWEEN_PROGRAMS, line, thread, cell->atomic_program, address);
  cell->write_program = number;
  cell->write_interval = interval;
  cell->write_warp_interval = warp_interval[warp];
  cell->writer = thread;
  cell->value = value;
}

// The range that holds an access, or null after a finding. Ranges are sorted and do not overlap.
static inline const Range* range_of(u64 address, int n_bytes, int line, int thread, int writes) {
  static s64 last;
  if (address % n_bytes) {
    found(MISALIGNED, line, thread, n_bytes, address);
    return 0;
  }
  if (last >= n_ranges || address < ranges[last].begin || address >= ranges[last].end) {
    s64 low = 0, high = n_ranges;
    while (high - low > 1) {
      s64 middle = (low + high) / 2;
      if (ranges[middle].begin <= address) low = middle; else high = middle;
    }
    last = low;
  }
  // A word that holds a byte of a tile may be read: tiles are aligned, and the rest of their last word is padding.
  u64 padding = n_ranges && !ranges[last].writable ? -ranges[last].end % n_bytes : 0;
  if (n_ranges == 0 || address < ranges[last].begin || address + n_bytes > ranges[last].end + padding) {
    found(OUT_OF_BOUNDS, line, thread, n_bytes, address);
    return 0;
  }
  if (writes && !ranges[last].writable) {
    found(READ_ONLY, line, thread, n_bytes, address);
    return 0;
  }
  return &ranges[last];
}

static inline void load_global(void* to, u64 address, int n_bytes, int line, int thread) {
  const Range* range = range_of(address, n_bytes, line, thread, 0);
  memset(to, 0xEE, n_bytes);
  if (!range) return;
  for (int i = 0; i < n_bytes; i++)
    if (range->writable) note_read(&range->cells[address - range->begin + i], thread, line, address + i, 0);
  memcpy(to, (const void*)address, n_bytes);
}

static inline void store_global(const void* from, u64 address, int n_bytes, int line, int thread) {
  const Range* range = range_of(address, n_bytes, line, thread, 1);
  if (!range) return;
  for (int i = 0; i < n_bytes; i++)
    note_write(&range->cells[address - range->begin + i], thread, line, address + i, 0, ((const u8*)from)[i]);
  memcpy((void*)address, from, n_bytes);
}

static inline void* atomic_global(u64 address, int n_bytes, int line, int thread) {
  const Range* range = range_of(address, n_bytes, line, thread, 1);
  if (!range) return 0;
  for (int i = 0; i < n_bytes; i++) {
    Cell* cell = &range->cells[address - range->begin + i];
    if (cell->write_program != NOBODY) found(RACE_BETWEEN_PROGRAMS, line, thread, cell->write_program, address);
    if (cell->read_program != NOBODY) found(RACE_BETWEEN_PROGRAMS, line, thread, cell->read_program, address);
    cell->atomic_program = number;
  }
  return (void*)address;
}

static inline int in_shared(u32 address, int n_bytes, int line, int thread) {
  if (address % n_bytes) found(MISALIGNED, line, thread, n_bytes, address);
  else if ((u64)address + n_bytes > SHARED_BYTES) found(OUT_OF_BOUNDS, line, thread, n_bytes, address);
  else return 1;
  return 0;
}

static inline void load_shared(void* to, u32 address, int n_bytes, int line, int thread) {
  memset(to, 0xEE, n_bytes);
  if (!in_shared(address, n_bytes, line, thread)) return;
  for (int i = 0; i < n_bytes; i++) note_read(&shared_cells[address + i], thread, line, address + i, 1);
  memcpy(to, shared_memory + address, n_bytes);
}

static inline void store_shared(const void* from, u32 address, int n_bytes, int line, int thread) {
  if (!in_shared(address, n_bytes, line, thread)) return;
  for (int i = 0; i < n_bytes; i++)
    note_write(&shared_cells[address + i], thread, line, address + i, 1, ((const u8*)from)[i]);
  memcpy(shared_memory + address, from, n_bytes);
}

static inline u8* local_at(u64 address, int n_bytes, int line, int thread) {
  u64 offset = address - LOCAL_WINDOW;
  if (address % n_bytes) found(MISALIGNED, line, thread, n_bytes, address);
  else if (offset > LOCAL_BYTES || offset + n_bytes > LOCAL_BYTES) found(OUT_OF_BOUNDS, line, thread, n_bytes, address);
  else return &local_memory[thread][offset];
  return 0;
}

static inline void load_local(void* to, u64 address, int n_bytes, int line, int thread) {
  const u8* from = local_at(address, n_bytes, line, thread);
  if (from) memcpy(to, from, n_bytes); else memset(to, 0xEE, n_bytes);
}

static inline void store_local(const void* from, u64 address, int n_bytes, int line, int thread) {
  u8* to = local_at(address, n_bytes, line, thread);
  if (to) memcpy(to, from, n_bytes);
}

static inline void load_generic(void* to, u64 address, int n_bytes, int line, int thread) {
  (address >= LOCAL_WINDOW ? load_local : load_global)(to, address, n_bytes, line, thread);
}

static inline void store_generic(const void* from, u64 address, int n_bytes, int line, int thread) {
  (address >= LOCAL_WINDOW ? store_local : store_global)(from, address, n_bytes, line, thread);
}

// Whether all threads take the same branch; if not, the run ends: lockstep would not be what the device does.
static inline int all_agree(const u8* predicate, int line) {
  for (int t = 1; t < THREADS; t++)
    if (predicate[t] != predicate[0]) return found(DIVERGENT, line, t, 0, 0), 0;
  return 1;
}

static inline void partial_warp(int line) { found(PARTIAL_WARP, line, 0, 0, 0); }
