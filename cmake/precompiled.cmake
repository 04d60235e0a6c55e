# Headers that nearly every file needs and that take longest to read, precompiled once for src/ and once for tests/.
# Only headers from outside: what our own files include stays as they say it, and a build with MILLRACE_PCH=OFF shows
# a missing one. JSON only for clang, which takes what a file uses of it; g++ reads all of a precompiled header.
set(precompiled <fmt/format.h> <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <cstring>
  <filesystem> <functional> <map> <memory> <mutex> <optional> <span> <string> <string_view> <thread> <unordered_map>
  <utility> <variant> <vector>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  list(APPEND precompiled <boost/json/value.hpp>)
endif()

# Clang notes when each header was written; ccache goes by what headers say, and may bring back what was made of others.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
endif()

# precompile(TARGET FAMILY [HEADER...]): the family's first target makes the headers, the others use them.
function(precompile target family)
  if(NOT MILLRACE_PCH OR MILLRACE_CROSS)
    return()
  endif()
  get_property(first GLOBAL PROPERTY precompiled_${family})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${precompiled} ${ARGN})
    set_property(GLOBAL PROPERTY precompiled_${family} ${target})
  endif()
endfunction()
