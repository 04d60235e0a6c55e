# What can be switched, and the flags every target shares.
option(MILLRACE_TEXT "tokenizers and templates (needs PCRE2 and utf8proc)" ON)
option(MILLRACE_TESTS "build the tests (needs GoogleTest)" ON)
option(MILLRACE_FUZZ "build the libFuzzer targets (clang only)" OFF)
option(MILLRACE_CUDA "build the CUDA backend (needs nvcc 13)" OFF)
option(MILLRACE_MPI "ranks as processes of an MPI job (needs libopenmpi-dev)" OFF)
option(MILLRACE_PCH "precompile the standard library, fmt and GoogleTest: a third less to compile from nothing" ON)
set(MILLRACE_BATCH 8 CACHE STRING "source files compiled together: half the time of a build from nothing (1: none)")
set(MILLRACE_SANITIZE "" CACHE STRING "sanitizers, as given to -fsanitize=")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # Precompiled headers are taken for what their text says. Paths are taken from the checkout on, so that a second one
  # finds what the first has compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
    CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
endif()

# Results must not depend on the compiler's mood: no contraction of a*b+c behind our back (contract 1).
set(flags -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror -ffp-contract=off
  -Wno-missing-field-initializers)  # members left out have defaults
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 and 13 report these inside the standard library when inlining std::string and std::variant at -O2 and above.
  list(APPEND flags -Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-stringop-overread
    -Wno-array-bounds)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
if(MILLRACE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)  # tests and fuzz targets share one build of the libraries
endif()
if(MILLRACE_SANITIZE)
  add_compile_options(-fsanitize=${MILLRACE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${MILLRACE_SANITIZE})
  # clang 14 on x86 cannot emit its check of function types for coroutines ("difference across sections"); Arm has no
  # such check.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND MILLRACE_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize=function)
  endif()
endif()

find_package(Threads REQUIRED)
if(MILLRACE_CROSS)
  # Debian installs libraries for one processor, but headers serve all: link them away from the system's own.
  set(headers ${CMAKE_BINARY_DIR}/headers)
  file(MAKE_DIRECTORY ${headers})
  foreach(name fmt boost)
    file(CREATE_LINK /usr/include/${name} ${headers}/${name} SYMBOLIC)
  endforeach()
  add_library(fmt::fmt INTERFACE IMPORTED GLOBAL)
  target_include_directories(fmt::fmt SYSTEM INTERFACE ${headers})
  target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
  set(BOOST_JSON_INCLUDE ${headers})
else()
  find_package(fmt REQUIRED)
  find_path(BOOST_JSON_INCLUDE boost/json.hpp REQUIRED)
endif()
