// SPDX-License-Identifier: Apache-2.0
// Runs the fuzz target without libFuzzer: replays files and folders once, then mutates them until a limit is reached.
//
//   headrace_fuzz [-seconds=N] [-runs=N] [-seed=N] [-timeout=N] [-artifact_prefix=PATH] FILE_OR_FOLDER...
//
// It stops when both limits are reached; a single execution that uses more CPU time than the timeout ends the process.
// Blind to coverage, it finds less a second than libFuzzer does; it is there for machines that have only g++. An input
// that ends the process is written to PATH followed by "crash".

#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

constexpr std::size_t kMaxInputBytes = 1 << 14;

struct Options {
  std::uint64_t runs = 0;
  double seconds = 0;
  std::uint64_t seed = 1;
  unsigned timeout = 10;  // seconds
  std::vector<std::filesystem::path> paths;
};

std::string artifact_prefix;
const Input* running = nullptr;

void keep_running_input() {
  if (!running) return;
  const std::string path = artifact_prefix + "crash";
  if (std::FILE* file = std::fopen(path.c_str(), "wb")) {
    std::fwrite(running->data(), 1, running->size(), file);
    std::fclose(file);
    std::fprintf(stderr, "the input was written to %s\n", path.c_str());
  }
}

// The timeout is CPU time, so that other load on the machine cannot exceed it; a deadlock uses none, and ends after
// kWaits times as long.
constexpr unsigned kWaits = 30;
unsigned timeout_seconds, waits;
std::clock_t started;

void give_up(int) {
  const bool busy = std::clock() - started >= static_cast<std::clock_t>(timeout_seconds) * CLOCKS_PER_SEC;
  if (!busy && ++waits < kWaits) {
    alarm(timeout_seconds);
    return;
  }
  std::fprintf(stderr, "an execution took longer than the timeout\n");
  std::abort();  // whose handler keeps the input
}

void execute(const Input& input, unsigned timeout) {
  running = &input;
  started = std::clock();
  timeout_seconds = timeout;
  waits = 0;
  alarm(timeout);
  LLVMFuzzerTestOneInput(input.data(), input.size());
  running = nullptr;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = argument.find('=') + 1;
    if (argument.starts_with("-runs=")) {
      options.runs = std::stoull(argument.substr(value));
    } else if (argument.starts_with("-seconds=")) {
      options.seconds = std::stod(argument.substr(value));
    } else if (argument.starts_with("-seed=")) {
      options.seed = std::stoull(argument.substr(value));
    } else if (argument.starts_with("-timeout=")) {
      options.timeout = static_cast<unsigned>(std::stoul(argument.substr(value)));
    } else if (argument.starts_with("-artifact_prefix=")) {
      artifact_prefix = argument.substr(value);
    } else if (argument.starts_with("-") || !std::filesystem::exists(argument)) {
      std::fprintf(stderr, "%s is neither an option nor a file\n", argv[i]);
      std::exit(2);
    } else {
      options.paths.emplace_back(argument);
    }
  }
  return options;
}

Input read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<Input> read_all(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::filesystem::path> files;
  for (const auto& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
      if (entry.is_regular_file()) files.push_back(entry.path());
  }
  // Folders list their files in no order; the same seed must give the same run.
  std::sort(files.begin(), files.end());
  std::vector<Input> inputs;
  for (const auto& file : files) inputs.push_back(read(file));
  return inputs;
}

class Mutator {
 public:
  Mutator(const std::vector<Input>& seeds, std::uint64_t seed) : seeds_(seeds), random_(seed) {}

  Input next() {
    Input input = any_seed();
    const std::size_t rounds = 1 + below(4) * below(4);
    for (std::size_t round = 0; round < rounds; ++round) mutate(input);
    if (input.size() > kMaxInputBytes) input.resize(kMaxInputBytes);
    return input;
  }

 private:
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }
  const Input& any_seed() { return seeds_[below(seeds_.size())]; }

  void mutate(Input& input) {
    if (input.empty()) input.push_back(0);
    const std::size_t at = below(input.size());
    const std::size_t n_bytes = std::min(1 + below(16), input.size() - at);
    const auto begin = input.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = begin + static_cast<std::ptrdiff_t>(n_bytes);
    switch (below(7)) {
      case 0:
        input[at] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 1:
        input[at] = static_cast<std::uint8_t>(random_());
        break;
      case 2:
        input[at] = static_cast<std::uint8_t>(input[at] + below(9) - 4);
        break;
      case 3:
        input.erase(begin, end);
        break;
      case 4:
        input.insert(begin, n_bytes, static_cast<std::uint8_t>(random_()));
        break;
      case 5:
        std::fill(begin, end, static_cast<std::uint8_t>(below(2) * 255));
        break;
      default: {  // some bytes of another seed, from the same offset more often than not
        const Input& other = any_seed();
        const std::size_t from = below(3) ? at : below(other.size());
        for (std::size_t i = 0; i < n_bytes && from + i < other.size(); ++i) input[at + i] = other[from + i];
      }
    }
  }

  const std::vector<Input>& seeds_;
  std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  __sanitizer_set_death_callback(keep_running_input);
  std::signal(SIGALRM, give_up);
  const std::vector<Input> seeds = read_all(options.paths);
  if (seeds.empty()) {
    std::fprintf(stderr, "no input was given: name a file or a folder of seeds\n");
    return 2;
  }
  std::uint64_t executions = 0;
  for (const Input& seed : seeds) execute(seed, options.timeout), ++executions;

  Mutator mutator(seeds, options.seed);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  while (executions < options.runs || seconds() < options.seconds)
    execute(mutator.next(), options.timeout), ++executions;
  std::printf("%llu executions\n", static_cast<unsigned long long>(executions));
  return 0;
}
