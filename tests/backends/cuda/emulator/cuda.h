// What CUDA C has without an include, as far as kernels of weft use it.
#pragma once
#include "device.h"

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(threads)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ SHARED

#define threadIdx emulator_item
#define blockIdx emulator_group
#define blockDim emulator_items
#define gridDim emulator_groups

// Where threads wait is told by the line: all must come to the same one.
#define __syncthreads() emulator_barrier(__LINE__)
#define __shfl_xor_sync(mask, x, lane) emulator_shuffled(__LINE__, mask, x, lane)

INLINE float __int_as_float(int x) { return emulator_bits<float>(x); }
INLINE int __float_as_int(float x) { return emulator_bits<int>(x); }
INLINE float __uint_as_float(unsigned x) { return emulator_bits<float>(x); }
INLINE unsigned __float_as_uint(float x) { return emulator_bits<unsigned>(x); }
INLINE double __longlong_as_double(long long x) { return emulator_bits<double>(x); }
INLINE long long __double_as_longlong(double x) { return emulator_bits<long long>(x); }

#define atomicCAS(place, old, next) emulator_exchange(place, old, next)
#define atomicAdd(place, y) emulator_add(place, y)
