// SPDX-License-Identifier: Apache-2.0
// What the core asks of the operating system: reads at an offset, kinds of files, errors, memory.
#include "platform/platform.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "checks.h"
#include "platform/cpu.h"

#if !defined(_WIN32)
#include <sys/stat.h>
#endif

namespace headrace::tests {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBytes = 10000;
std::uint8_t byte_at(std::size_t i) { return static_cast<std::uint8_t>(i * 31 >> 3); }

bool holds(const std::uint8_t* memory, std::size_t n, std::size_t offset) {
  for (std::size_t i = 0; i < n; ++i)
    if (memory[i] != byte_at(offset + i)) return false;
  return true;
}

void check_reads(Checks& checks, int handle) {
  std::vector<std::uint8_t> memory(kBytes + 100);
  checks.expect(platform::read_at(handle, memory.data(), 500, 70) == 500 && holds(memory.data(), 500, 70),
                "bytes come from their offset");
  checks.expect(platform::read_at(handle, memory.data(), 10, 0) == 10 && holds(memory.data(), 10, 0),
                "an earlier read does not move the next one");
  checks.expect(platform::read_at(handle, memory.data(), 500, kBytes - 7) == 7, "a read stops at the end of the file");
  checks.expect(platform::read_at(handle, memory.data(), 500, kBytes) == 0, "nothing is read behind the end");

  std::uint8_t first[100], second[300];
  const platform::Part parts[] = {{first, sizeof first}, {second, sizeof second}};
  checks.expect(
      platform::read_parts_at(handle, parts, 1000) == 400 && holds(first, 100, 1000) && holds(second, 300, 1100),
      "parts are filled one after the other");
  checks.expect(platform::read_parts_at(handle, parts, kBytes - 150) == 150 && holds(second, 50, kBytes - 50),
                "parts stop at the end of the file");

  const platform::CachedRead cached = platform::read_cached_at(handle, memory.data(), 500, 70);
  checks.expect(cached.bytes <= 500 && holds(memory.data(), cached.bytes, 70), "a cached read gives the file's bytes");
  checks.expect(cached.is_supported || cached.bytes == 0, "an unsupported cached read gives none");
  platform::will_read(handle, 0, kBytes);
  platform::will_not_read_again(handle);
  checks.expect(platform::read_at(handle, memory.data(), 10, 5) == 10 && holds(memory.data(), 10, 5),
                "hints change no bytes");
}

void check_files(Checks& checks, const fs::path& folder) {
  const std::string path = (folder / "bytes").string();
  std::vector<char> content(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) content[i] = static_cast<char>(byte_at(i));
  std::ofstream(path, std::ios::binary).write(content.data(), kBytes);

  bool direct = false;
  const int handle = platform::open_file(path.c_str(), direct);
  platform::FileStatus status;
  checks.expect(handle >= 0 && !direct, "a file is opened");
  checks.expect(
      platform::file_status(handle, status) && status.is_regular && !status.is_folder && status.size == kBytes,
      "a file has a size");
  check_reads(checks, handle);
  platform::close_file(handle);

  direct = true;
  const int other = platform::open_file(path.c_str(), direct);  // `direct` is false where it is not supported
  auto* block = static_cast<std::uint8_t*>(platform::allocate_aligned(4096, 4096));
  checks.expect(platform::read_at(other, block, 4096, 4096) == 4096 && holds(block, 4096, 4096),
                "a direct read gives the same bytes");
  platform::free_aligned(block);
  platform::close_file(other);

  direct = false;
  errno = 0;
  checks.expect(platform::open_file((folder / "missing").string().c_str(), direct) == -1 && errno == ENOENT,
                "a missing file is an error");
#if !defined(_WIN32)
  const int opened = platform::open_file(folder.string().c_str(), direct);
  checks.expect(platform::file_status(opened, status) && status.is_folder && !status.is_regular, "a folder is one");
  platform::close_file(opened);
  const std::string pipe = (folder / "pipe").string();
  checks.expect(::mkfifo(pipe.c_str(), 0600) == 0, "a pipe is made");
  const int reader = platform::open_file(pipe.c_str(), direct);  // must not wait for a writer
  checks.expect(platform::file_status(reader, status) && !status.is_regular && !status.is_folder, "a pipe is no file");
  platform::close_file(reader);
#endif
}

void check_memory(Checks& checks) {
  constexpr std::size_t kSize = std::size_t{4} << 20;
  for (const bool huge : {false, true}) {
    auto* memory = static_cast<std::uint8_t*>(platform::map_memory(kSize, huge));
    checks.expect(memory && memory[0] == 0 && memory[kSize - 1] == 0, "pages are zero");
    platform::populate_memory(memory, kSize);
    std::memset(memory, 1, kSize);
    platform::unmap_memory(memory, kSize);
  }
  void* aligned = platform::allocate_aligned(64, 640);
  checks.expect(aligned && reinterpret_cast<std::uintptr_t>(aligned) % 64 == 0, "memory is aligned");
  platform::free_aligned(aligned);
  platform::free_aligned(nullptr);
  checks.expect(platform::usable_memory() > kSize && platform::max_open_files() >= 16, "there are limits");
}

void check_time(Checks& checks) {
  const double before = platform::thread_seconds();
  volatile unsigned sum = 0;
  for (unsigned i = 0; i < 50'000'000; ++i) sum = sum + i;
  checks.expect(platform::thread_seconds() > before, "work takes CPU time");
  checks.expect(platform::process_id() > 0, "a process has an id");
}

// Against what the compiler's own runtime finds.
void check_cpu(Checks& checks) {
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
  const platform::CpuFeatures& cpu = platform::cpu_features();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("bmi");
  const bool f_and_vl = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
  const bool slow_pdep = __builtin_cpu_is("znver1") || __builtin_cpu_is("znver2") || __builtin_cpu_is("bdver4");
  checks.expect(cpu.sse42 == (__builtin_cpu_supports("sse4.2") != 0), "SSE4.2 is found");
  checks.expect(cpu.avx2 == avx2, "AVX2 is found");
  checks.expect(cpu.bmi2 == (__builtin_cpu_supports("bmi2") != 0), "BMI2 is found");
  checks.expect(cpu.fast_pdep == (cpu.bmi2 && !slow_pdep), "a slow pdep is known");
  checks.expect(cpu.vpclmul == (f_and_vl && __builtin_cpu_supports("vpclmulqdq")), "VPCLMULQDQ is found");
  checks.expect(cpu.avx512 == (f_and_vl && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                               __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
                               __builtin_cpu_supports("avx512bitalg") && __builtin_cpu_supports("avx512vpopcntdq")),
                "AVX-512 is found");
#else
  static_cast<void>(checks);
#endif
}

int run() {
  Checks checks;
  const fs::path folder = fs::temp_directory_path() / ("headrace-" + std::to_string(platform::process_id()));
  fs::create_directory(folder);
  check_files(checks, folder);
  fs::remove_all(folder);
  check_memory(checks);
  check_time(checks);
  check_cpu(checks);
  return checks.report();
}

}  // namespace
}  // namespace headrace::tests

int main() { return headrace::tests::run(); }
