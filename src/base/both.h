// What a function is that runs on the host and, compiled by nvcc, on a GPU as well.
#pragma once

#ifdef __CUDACC__
#define MILLRACE_BOTH __host__ __device__ __forceinline__
#else
#define MILLRACE_BOTH inline
#endif
