# SPDX-License-Identifier: Apache-2.0
# Defines the target headrace_deflate: libdeflate without gzip, from build/third_party. It chooses its instruction set at run time.
set(deflate_source ${HEADRACE_THIRD_PARTY}/libdeflate)
if(NOT EXISTS ${deflate_source}/libdeflate.h)
  message(FATAL_ERROR "${deflate_source} must hold the sources of libdeflate: run `python cpp/third_party/fetch.py`, which "
    "needs `pip install unearth`.")
endif()
add_library(headrace_deflate STATIC)
foreach(file adler32 arm/cpu_features crc32 deflate_compress deflate_decompress utils x86/cpu_features zlib_compress zlib_decompress)
  target_sources(headrace_deflate PRIVATE ${deflate_source}/lib/${file}.c)
endforeach()
target_include_directories(headrace_deflate SYSTEM PUBLIC ${deflate_source})
target_compile_features(headrace_deflate PRIVATE c_std_11)
target_compile_options(headrace_deflate PRIVATE $<$<CONFIG:Release>:-O2>)
if(SKBUILD)
  install(FILES ${deflate_source}/COPYING DESTINATION headrace/licenses RENAME libdeflate.txt)
endif()
