# The kernels of src/backend/cuda. Included by src/backend.
#
# Three kinds, by what they are compiled for. Kernels for Hopper (9.0) alone use its own matrix and copy instructions.
# The portable family computes the same without them, on every GPU from 8.0 on; the driver compiles it for the GPU that
# it finds. What both families share exists for both. src/backend/cuda/family.cpp chooses at run time.
enable_language(CUDA)
# CMake 3.25 does not know yet that this compiler has the standard.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
# CMake 3.25, Debian 12's, deprecates nvToolsExt for projects that ask for 3.25, and fails where it is gone: CUDA 13.
set(required ${CMAKE_MINIMUM_REQUIRED_VERSION})
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
find_package(CUDAToolkit 13 REQUIRED)
set(CMAKE_MINIMUM_REQUIRED_VERSION ${required})
set(hopper_kernels few_rows many_rows spread_rows fp8_rows attend_cluster attend_long attend_short)

file(GLOB shared_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.cu)
file(GLOB portable_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/portable/*.cu)
list(TRANSFORM hopper_kernels REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/src/backend/cuda/\\1.cu")
list(REMOVE_ITEM shared_kernels ${hopper_kernels})
set(for_hopper -gencode=arch=compute_90a,code=sm_90a)
set(for_others -gencode=arch=compute_80,code=compute_80)
set_source_files_properties(${hopper_kernels} PROPERTIES COMPILE_OPTIONS "${for_hopper}")
set_source_files_properties(${portable_kernels} PROPERTIES COMPILE_OPTIONS "${for_others}")
set_source_files_properties(${shared_kernels} PROPERTIES COMPILE_OPTIONS "${for_hopper};${for_others}")
target_sources(millrace_backend PRIVATE ${hopper_kernels} ${portable_kernels} ${shared_kernels})
set_target_properties(millrace_backend PROPERTIES CUDA_ARCHITECTURES OFF)
# No contraction of a * b + c, as on the host: fused and single kernels must round alike.
target_compile_options(millrace_backend PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>")
target_compile_definitions(millrace_backend PRIVATE MILLRACE_CUDA=1)
target_link_libraries(millrace_backend PUBLIC CUDA::cudart_static)
