// SPDX-License-Identifier: Apache-2.0
// The GIL, let go of while the core works.
#pragma once

#include <Python.h>

#include "platform/platform.h"

namespace headrace::bindings {

// Whoever makes one holds the GIL, and holds it again when it is gone.
//
// A daemon thread may ask for the GIL back when the interpreter is already ending. Until 3.14 CPython then ends the
// thread with `pthread_exit`, which unwinds the stack as an exception does, and a binding that may not be left by an
// exception aborts the process. Such a thread sleeps here until the process has ended, as it does in 3.14.
class WithoutGil {
 public:
  WithoutGil() noexcept : thread_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(thread_);
    } catch (...) {  // what `pthread_exit` throws has no portable name, and nothing else throws
      platform::sleep_forever();
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* thread_;
};

}  // namespace headrace::bindings
