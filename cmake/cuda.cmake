# The kernels of src/backend/cuda, for Hopper (sm_90a: its own matrix instructions). Included by src/backend.
enable_language(CUDA)
# CMake 3.25 does not know yet that this compiler has the standard.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
find_package(CUDAToolkit 13 REQUIRED)
file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.cu)
target_sources(millrace_backend PRIVATE ${kernels})
set_target_properties(millrace_backend PROPERTIES CUDA_ARCHITECTURES 90a)
# No contraction of a * b + c, as on the host: fused and single kernels must round alike.
target_compile_options(millrace_backend PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>")
target_compile_definitions(millrace_backend PRIVATE MILLRACE_CUDA=1)
target_link_libraries(millrace_backend PUBLIC CUDA::cudart_static)
