"""Dialect: OpenCL C or CUDA C, as a page of macros that kernels are written in.

Kernels use macros such as ``GLOBAL`` and ``f32``, which the prelude of a program defines. A dialect
is its prelude, the heads of its kernels, and a few properties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """A dialect of C.

    Attributes
    ----------
    name
        The name shown in listings.
    prelude
        The macros and types that every program begins with: ``i8`` to ``u64``, ``f32`` and ``f64``;
        ``index_t``, the type of indices below 2^31; ``FUNCTION``; ``GLOBAL`` and ``LOCAL`` memory;
        ``GLOBAL_ID``, ``GLOBAL_SIZE``, ``LOCAL_ID`` and ``GROUP_ID``; ``BARRIER()``, and
        ``MEMORY_BARRIER()`` for global memory too; ``AS_U32`` and its like, which reinterpret bits;
        ``FMA``; ``CHOICE(condition, x, y)`` of scalars; ``GUARDED(condition, value, otherwise)``, a
        value that some compilers and their functions get right only where a condition holds, and
        `otherwise` elsewhere; with vectors, ``SPLAT(type, scalar)``, ``VECTOR(type, lanes...)``,
        ``SELECT(condition, x, y)`` by lanes, ``DIVIDED(vector, scalar)``, ``LANE(vector, digit)``
        with a hexadecimal digit, and the halves ``LOW(vector)`` and ``HIGH(vector)``;
        ``REPORT(word, code)``, which sets a word that is 0 to a code; and the compare-and-swap
        ``ATOMIC_CAS_U32(place, old, new)``, also for ``U64``, which returns the old value.
    head
        The head of a kernel, a format string with the fields ``name``, ``parameters`` and
        ``group``, the size of its work groups.
    aligned
        The attribute of an aligned struct, a format string with the field ``bytes``.
    double
        The declarations that programs with float64 need.
    warp
        The width of a warp (sub-group), in work items; 0 without warp shuffles.
        ``SHUFFLE_XOR(value, mask)`` returns the value of the lane whose index differs in the bits
        of the mask.
    shuffling
        The attribute of kernels with warp shuffles, a format string with the field ``warp``.
    has_vectors
        Whether operators and functions take vectors.
    has_doubles
        Whether that is so for vectors of float64 too, with bools in lanes of 64 bits.
    has_dot4
        Whether it has ``DOT4(sums, x, y)``: `sums`, a vector of ``u32``, plus the products of four
        bytes in each lane, the unsigned bytes of the scalar `x` and the signed ones of the lane of
        the vector `y`; and ``DOT4_BY_SIGNED(sums, x, y)``, the same of a vector `x` and a scalar
        `y`.
    """

    name: str
    prelude: str
    head: str
    aligned: str
    double: str = ""
    warp: int = 0
    shuffling: str = ""
    has_vectors: bool = False
    has_doubles: bool = False
    has_dot4: bool = False

    def kernel_head(
        self, name: str, parameters: Sequence[str], group: int, shuffles: bool = False
    ) -> str:
        """Return the head of a kernel, up to its body; `shuffles` if it uses warp shuffles."""
        head = self.head.format(name=name, parameters=", ".join(parameters), group=group)
        return self.shuffling.format(warp=self.warp) + head if shuffles else head


OPENCL = Dialect(
    name="OpenCL C",
    prelude="""\
typedef char i8; typedef short i16; typedef int i32; typedef long i64;
typedef uchar u8; typedef ushort u16; typedef uint u32; typedef ulong u64;
typedef float f32; typedef int index_t;
typedef float2 f32x2; typedef float4 f32x4; typedef float8 f32x8; typedef float16 f32x16;
typedef int2 i32x2; typedef int4 i32x4; typedef int8 i32x8; typedef int16 i32x16;
typedef uint2 u32x2; typedef uint4 u32x4; typedef uint8 u32x8; typedef uint16 u32x16;
typedef f32x16 near_f32x16 __attribute__((aligned(4)));
typedef i32x16 near_i32x16 __attribute__((aligned(4)));
typedef u32x16 near_u32x16 __attribute__((aligned(4)));
typedef uchar16 near_u8x16 __attribute__((aligned(1)));
typedef char16 near_i8x16 __attribute__((aligned(1)));
#define SPLAT(type, x) ((type)(x))
#define VECTOR(type, ...) ((type)(__VA_ARGS__))
#define SELECT(condition, x, y) ((condition) ? (x) : (y))
#define DIVIDED(x, y) ((x) / (y))
#define LANE(v, digit) v.s##digit
#define LOW(v) v.lo
#define HIGH(v) v.hi
#define FUNCTION static inline __attribute__((always_inline))
#define GLOBAL __global
#define LOCAL __local
#define GLOBAL_ID ((i64)get_global_id(0))
#define GLOBAL_SIZE ((i64)get_global_size(0))
#define LOCAL_ID ((i32)get_local_id(0))
#define GROUP_ID ((i64)get_group_id(0))
#define SHUFFLE_XOR(x, mask) sub_group_shuffle_xor(x, mask)
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define MEMORY_BARRIER() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define AS_U32(x) as_uint(x)
#define AS_I32(x) as_int(x)
#define AS_F32(x) as_float(x)
#define AS_U64(x) as_ulong(x)
#define AS_I64(x) as_long(x)
#define CHOICE(condition, x, y) ((condition) ? (x) : (y))
#define GUARDED(condition, value, otherwise) CHOICE(condition, value, otherwise)
#define FMA(a, b, c) fma(a, b, c)
#define REPORT(word, code) atomic_cmpxchg((volatile __global int *)(word), 0, code)
#define ATOMIC_CAS_U32(place, old, new) atomic_cmpxchg((volatile __global u32 *)(place), old, new)
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#define ATOMIC_CAS_U64(place, old, new) atom_cmpxchg((volatile __global u64 *)(place), old, new)
#endif
""",
    head=(
        "__kernel __attribute__((reqd_work_group_size({group}, 1, 1)))\nvoid {name}({parameters})"
    ),
    aligned="__attribute__((aligned({bytes})))",
    shuffling="__attribute__((intel_reqd_sub_group_size({warp})))\n",
    double="""\
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double f64; typedef double2 f64x2; typedef double4 f64x4; typedef double8 f64x8;
#define AS_F64(x) as_double(x)
""",
    has_vectors=True,
)

CUDA = Dialect(
    name="CUDA C",
    prelude="""\
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32; typedef int index_t;
#define FUNCTION static __device__ __forceinline__
#define GLOBAL
#define LOCAL __shared__
#define GLOBAL_ID ((i64)blockIdx.x * blockDim.x + threadIdx.x)
#define GLOBAL_SIZE ((i64)gridDim.x * blockDim.x)
#define LOCAL_ID ((i32)threadIdx.x)
#define GROUP_ID ((i64)blockIdx.x)
#define SHUFFLE_XOR(x, mask) __shfl_xor_sync(0xffffffffu, x, mask)
#define BARRIER() __syncthreads()
#define MEMORY_BARRIER() __syncthreads()
#define INFINITY __int_as_float(0x7f800000)
#define AS_U32(x) ((u32)__float_as_uint(x))
#define AS_I32(x) __float_as_int(x)
#define AS_F32(x) __uint_as_float(x)
#define AS_U64(x) ((u64)__double_as_longlong(x))
#define AS_I64(x) ((i64)__double_as_longlong(x))
#define CHOICE(condition, x, y) ((condition) ? (x) : (y))
#define GUARDED(condition, value, otherwise) (value)
#define FMA(a, b, c) fma(a, b, c)
#define REPORT(word, code) atomicCAS((int *)(word), 0, code)
#define ATOMIC_CAS_U32(place, old, new) atomicCAS((u32 *)(place), old, new)
#define ATOMIC_CAS_U64(place, old, new) atomicCAS((u64 *)(place), old, new)
#define ATOMIC_ADD(place, number) atomicAdd(place, number)
""",
    head='extern "C" __global__ __launch_bounds__({group})\nvoid {name}({parameters})',
    aligned="__align__({bytes})",
    double="""\
typedef double f64;
#define AS_F64(x) __longlong_as_double((i64)(x))
""",
    warp=32,
)
