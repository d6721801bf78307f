// SPDX-License-Identifier: Apache-2.0
// A mutex that clang's thread safety analysis understands: `make locks` fails if guarded data is used unlocked.
//
// The standard library's mutex has no annotations in libstdc++, so the core uses these thin wrappers. Other compilers
// see empty macros; the code that they generate is that of std::mutex.
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define HEADRACE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define HEADRACE_THREAD_ANNOTATION(x)
#endif

// The names are those of the clang documentation and of Abseil.
#define GUARDED_BY(x) HEADRACE_THREAD_ANNOTATION(guarded_by(x))  // read and written only while x is held
#define REQUIRES(...) HEADRACE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))  // the caller holds it
#define EXCLUDES(...) HEADRACE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))       // the caller must not hold it

namespace headrace {

class HEADRACE_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend class MutexLock;  // the only way to lock it
  std::mutex mutex_;
};

// Holds a mutex for the length of a scope.
class HEADRACE_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HEADRACE_THREAD_ANNOTATION(acquire_capability(mutex)) : lock_(mutex.mutex_) {}
  ~MutexLock() HEADRACE_THREAD_ANNOTATION(release_capability()) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // For std::condition_variable, which unlocks it only while it waits. Write waits as loops: the analysis does not see
  // that a predicate runs with the mutex held.
  std::unique_lock<std::mutex>& native() noexcept { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace headrace
