// What kernels in CUDA C and OpenCL C have in common, for g++ on x86-64: memory that a work group
// shares, atomics and mathematical functions. A dialect's header, which includes this one, comes
// before the text of a program. There are no system headers, so that there is little to parse.
//
// g++ compiles the text with -fsanitize=thread, but without the library of that: each access of a
// kernel calls a function of runtime.cpp instead. So do the functions that are declared here.
#pragma once

typedef unsigned long long emulator_u64;

struct emulator_dim3 { unsigned x, y, z; };

extern "C" {
// The place of the work item that runs. It is const so that reading it is no access to memory.
extern const emulator_dim3 emulator_item, emulator_group, emulator_items, emulator_groups;

// Waits for all work items of the group at one line.
void emulator_barrier(emulator_u64 line);
// Gives the bits of the work item of the same warp whose number differs in the bits of `lane`.
emulator_u64 emulator_shuffle(emulator_u64 line, unsigned mask, emulator_u64 bits, int lane);
// Looks at an atomic update.
void emulator_update(const void *place, int size, void *site);
}

#define INLINE static inline __attribute__((always_inline))
// Functions whose own accesses are not looked at.
#define UNSEEN __attribute__((no_sanitize("thread", "undefined"), noinline)) static

// The memory that a group shares is a section of its own for each kernel: SECTION is defined before.
#define SHARED static __attribute__((section(SECTION)))

// Calls a kernel with the addresses of its arguments.
#define UNCHECKED __attribute__((no_sanitize("thread", "undefined")))
template <int... N> struct emulator_numbers {
    template <typename... T> static UNCHECKED void call(void (*kernel)(T...), void **places) {
        kernel((T)places[N]...);
    }
};
template <typename... T> UNCHECKED void emulator_start(void (*kernel)(T...), void **places) {
    emulator_numbers<__integer_pack(sizeof...(T))...>::call(kernel, places);
}

// Bits

template <typename To, typename From> INLINE To emulator_bits(From x) { return __builtin_bit_cast(To, x); }
INLINE int emulator_shuffled(int line, unsigned mask, int x, int lane) { return (int)emulator_shuffle(line, mask, (unsigned)x, lane); }
INLINE unsigned emulator_shuffled(int line, unsigned mask, unsigned x, int lane) { return (unsigned)emulator_shuffle(line, mask, x, lane); }
INLINE float emulator_shuffled(int line, unsigned mask, float x, int lane) {
    return emulator_bits<float>((unsigned)emulator_shuffle(line, mask, emulator_bits<unsigned>(x), lane));
}
#define SHUFFLED(T) \
    INLINE T emulator_shuffled(int line, unsigned mask, T x, int lane) { \
        return emulator_bits<T>(emulator_shuffle(line, mask, emulator_bits<emulator_u64>(x), lane)); \
    }
SHUFFLED(long) SHUFFLED(unsigned long) SHUFFLED(long long) SHUFFLED(unsigned long long) SHUFFLED(double)

// Atomics: nobody runs in between, so that they need not be any.

template <typename T> struct emulator_same { typedef T type; };
template <typename T>
UNSEEN T emulator_exchange(T *place, typename emulator_same<T>::type old, typename emulator_same<T>::type next) {
    emulator_update(place, sizeof(T), __builtin_return_address(0));
    T found = *place;
    if (found == old) *place = next;
    return found;
}
template <typename T> UNSEEN T emulator_add(T *place, typename emulator_same<T>::type y) {
    emulator_update(place, sizeof(T), __builtin_return_address(0));
    T found = *place;
    *place = found + y;
    return found;
}

// Mathematical functions: those for float overload those for double, which are C's.

#define OF_ONE(name) \
    extern "C" double name(double); \
    INLINE float name(float x) { return __builtin_##name##f(x); }
#define OF_TWO(name) \
    extern "C" double name(double, double); \
    INLINE float name(float x, float y) { return __builtin_##name##f(x, y); }
OF_ONE(exp) OF_ONE(exp2) OF_ONE(expm1) OF_ONE(log) OF_ONE(log2) OF_ONE(log10) OF_ONE(log1p)
OF_ONE(sqrt) OF_ONE(cbrt) OF_ONE(fabs) OF_ONE(sin) OF_ONE(cos) OF_ONE(tan) OF_ONE(asin) OF_ONE(acos)
OF_ONE(atan) OF_ONE(sinh) OF_ONE(cosh) OF_ONE(tanh) OF_ONE(asinh) OF_ONE(acosh) OF_ONE(atanh)
OF_ONE(erf) OF_ONE(erfc) OF_ONE(lgamma) OF_ONE(tgamma)
OF_ONE(floor) OF_ONE(ceil) OF_ONE(trunc) OF_ONE(rint) OF_ONE(round)
OF_TWO(pow) OF_TWO(fmod) OF_TWO(copysign) OF_TWO(hypot) OF_TWO(atan2) OF_TWO(fmax) OF_TWO(fmin)
OF_TWO(nextafter) OF_TWO(remainder)
extern "C" double fma(double, double, double);
extern "C" double ldexp(double, int);
INLINE float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
INLINE float ldexp(float x, int y) { return __builtin_ldexpf(x, y); }
INLINE float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
INLINE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
