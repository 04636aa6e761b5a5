// What OpenCL C has, as far as kernels of weft for parallel devices use it. Vectors are declared,
// since every program names them, but have no functions: only serial devices compute with them.
#pragma once
#include "device.h"

#define __kernel
#define __global
#define __local SHARED
#define cl_khr_int64_base_atomics 1
#define reqd_work_group_size(x, y, z)
#define intel_reqd_sub_group_size(x)

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
#define VECTOR(type, n) typedef type type##n __attribute__((vector_size(n * sizeof(type))));
#define VECTORS(type) VECTOR(type, 2) VECTOR(type, 4) VECTOR(type, 8) VECTOR(type, 16)
VECTORS(float) VECTORS(double) VECTORS(int) VECTORS(uint) VECTORS(char) VECTORS(uchar)

INLINE ulong get_global_id(int) { return (ulong)emulator_group.x * emulator_items.x + emulator_item.x; }
INLINE ulong get_global_size(int) { return (ulong)emulator_groups.x * emulator_items.x; }
INLINE ulong get_local_id(int) { return emulator_item.x; }
INLINE ulong get_group_id(int) { return emulator_group.x; }

#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
#define barrier(fences) emulator_barrier(__LINE__)
#define sub_group_shuffle_xor(x, lane) emulator_shuffled(__LINE__, 0xffffffffu, x, lane)

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
INLINE float as_float(uint x) { return emulator_bits<float>(x); }
INLINE uint as_uint(float x) { return emulator_bits<uint>(x); }
INLINE int as_int(float x) { return emulator_bits<int>(x); }
INLINE double as_double(ulong x) { return emulator_bits<double>(x); }
INLINE ulong as_ulong(double x) { return emulator_bits<ulong>(x); }
INLINE long as_long(double x) { return emulator_bits<long>(x); }
template <typename T> INLINE long convert_long(T x) { return (long)x; }

INLINE int atomic_cmpxchg(volatile int *place, int old, int next) { return emulator_exchange((int *)place, old, next); }
INLINE uint atomic_cmpxchg(volatile uint *place, uint old, uint next) { return emulator_exchange((uint *)place, old, next); }
INLINE ulong atom_cmpxchg(volatile ulong *place, ulong old, ulong next) { return emulator_exchange((ulong *)place, old, next); }
