# Toolchain for tests under emulation: builds for the other of our two processors with Debian's cross compiler. Only
# what stands below text/ is built this way: it needs nothing but headers.
#   cmake --preset release -B build/emulated -DCMAKE_TOOLCHAIN_FILE=cmake/cross.cmake -DMILLRACE_TEXT=OFF
if(CMAKE_HOST_SYSTEM_PROCESSOR STREQUAL "x86_64")
  set(CMAKE_SYSTEM_PROCESSOR aarch64)
else()
  set(CMAKE_SYSTEM_PROCESSOR x86_64)
endif()
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_CXX_COMPILER ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu-g++)
set(CMAKE_C_COMPILER ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu-gcc)
set(MILLRACE_CROSS ON)
