# SPDX-License-Identifier: Apache-2.0
# Defines the target headrace_jpeg: libjpeg-turbo 2.1 or newer.
#
# SYSTEM is a library with headers that CMake finds. BUNDLED is compiled from sources that fetch.py has put into
# build/third_party. AUTO tries them in this order.
set(HEADRACE_JPEG AUTO CACHE STRING "Which libjpeg-turbo to use: AUTO, SYSTEM or BUNDLED")
add_library(headrace_jpeg INTERFACE)

set(jpeg_source ${HEADRACE_THIRD_PARTY}/libjpeg-turbo)
set(jpeg_found OFF)

if(NOT HEADRACE_JPEG STREQUAL "BUNDLED")
  find_package(JPEG QUIET)
endif()
if(JPEG_FOUND)
  # The static library comes first, so that a wheel needs no other. It must fit into a shared one: Debian's does not.
  list(GET JPEG_LIBRARIES -1 jpeg_SHARED)
  cmake_path(REPLACE_EXTENSION jpeg_SHARED LAST_ONLY a OUTPUT_VARIABLE jpeg_STATIC)
  foreach(kind STATIC SHARED)
    block(PROPAGATE HEADRACE_JPEG_${kind}_WORKS)
      set(CMAKE_REQUIRED_QUIET ON)
      set(CMAKE_REQUIRED_FLAGS -fPIC)
      set(CMAKE_REQUIRED_INCLUDES ${JPEG_INCLUDE_DIRS})
      set(CMAKE_REQUIRED_LIBRARIES ${jpeg_${kind}})
      set(CMAKE_REQUIRED_LINK_OPTIONS $<$<PLATFORM_ID:Linux>:-shared>)
      check_cxx_source_compiles("
        #include <cstdio>
        #include <jpeglib.h>
        #if LIBJPEG_TURBO_VERSION_NUMBER < 2001000
        #error another libjpeg, or an old one
        #endif
        int main() {
          jpeg_decompress_struct info;
          jpeg_error_mgr errors;
          info.err = jpeg_std_error(&errors);
          jpeg_create_decompress(&info);
          jpeg_mem_src(&info, nullptr, 0);
          return static_cast<int>(jpeg_read_header(&info, TRUE) + jpeg_skip_scanlines(&info, 1));
        }" HEADRACE_JPEG_${kind}_WORKS)
    endblock()
    if(HEADRACE_JPEG_${kind}_WORKS AND NOT jpeg_found)
      set(jpeg_found ON)
      target_include_directories(headrace_jpeg SYSTEM INTERFACE ${JPEG_INCLUDE_DIRS})
      target_link_libraries(headrace_jpeg INTERFACE ${jpeg_${kind}})
      message(STATUS "JPEG is decoded by ${jpeg_${kind}}")
    endif()
  endforeach()
endif()

if(NOT jpeg_found AND NOT HEADRACE_JPEG STREQUAL "SYSTEM" AND EXISTS ${jpeg_source}/CMakeLists.txt)
  set(jpeg_found ON)
  include(CheckLanguage)
  check_language(ASM_NASM)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$" AND NOT CMAKE_ASM_NASM_COMPILER)
    message(WARNING "JPEG will be decoded without SIMD, at about a third of the speed, because nasm was not found. "
      "Install nasm, or libjpeg-turbo with its headers (libjpeg-dev on Debian, libjpeg-turbo-devel on Fedora).")
  endif()
  # It refuses to be part of another build, so it is built as one of its own.
  include(ExternalProject)
  set(jpeg_build ${CMAKE_CURRENT_BINARY_DIR}/libjpeg-turbo)
  set(jpeg_archive ${jpeg_build}/libjpeg.a)
  set(jpeg_options -DENABLE_SHARED=OFF -DWITH_TURBOJPEG=OFF -DWITH_TOOLS=OFF -DWITH_TESTS=OFF
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER}
    -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DCMAKE_INSTALL_PREFIX=${jpeg_build}/prefix)
  foreach(name CMAKE_C_COMPILER_LAUNCHER CMAKE_C_COMPILER_TARGET CMAKE_SYSTEM_NAME CMAKE_SYSTEM_PROCESSOR
      CMAKE_OSX_ARCHITECTURES CMAKE_OSX_DEPLOYMENT_TARGET CMAKE_AR CMAKE_RANLIB CMAKE_RC_COMPILER
      CMAKE_MAKE_PROGRAM)
    if(${name} AND (CMAKE_CROSSCOMPILING OR NOT name MATCHES "SYSTEM"))
      list(APPEND jpeg_options -D${name}=${${name}})
    endif()
  endforeach()
  ExternalProject_Add(libjpeg_turbo
    SOURCE_DIR ${jpeg_source}
    BINARY_DIR ${jpeg_build}
    CMAKE_ARGS ${jpeg_options}
    BUILD_COMMAND ${CMAKE_COMMAND} --build ${jpeg_build} --target jpeg-static
    BUILD_BYPRODUCTS ${jpeg_archive}
    INSTALL_COMMAND "")
  add_dependencies(headrace_jpeg libjpeg_turbo)
  target_include_directories(headrace_jpeg SYSTEM INTERFACE ${jpeg_source}/src ${jpeg_build})
  target_link_libraries(headrace_jpeg INTERFACE ${jpeg_archive})
  if(SKBUILD)
    install(FILES ${jpeg_source}/LICENSE.md DESTINATION headrace/licenses RENAME libjpeg-turbo.md)
    install(FILES ${jpeg_source}/README.ijg DESTINATION headrace/licenses)
  endif()
  message(STATUS "JPEG is decoded by the bundled libjpeg-turbo")
endif()

if(NOT jpeg_found)
  message(FATAL_ERROR "libjpeg-turbo 2.1 or newer with its headers was not found. Install it (libjpeg-dev on Debian "
    "and Ubuntu, libjpeg-turbo-devel on Fedora, jpeg-turbo with Homebrew) and set CMAKE_PREFIX_PATH to its prefix if "
    "it is elsewhere; or set HEADRACE_JPEG to BUNDLED to compile it.")
endif()
