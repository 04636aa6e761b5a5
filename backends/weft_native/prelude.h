/* The dialect of kernels for the host: C11 with the vector extensions of GCC and Clang.
   LANES is the number of 32-bit lanes of a vector register. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
typedef int8_t i8; typedef int16_t i16; typedef int32_t i32; typedef int64_t i64;
typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
typedef float f32; typedef double f64;
/* Indices are as wide as addresses. Narrower ones would be extended for each access, since with
   -fwrapv they may wrap around: a stencil takes 1.4 times as long. */
typedef intptr_t index_t;
#define FUNCTION static inline __attribute__((always_inline))
/* Of kernels: GCC 12.2 reads elements before they are written where it inlines a kernel whose
   arguments are parts of one buffer. */
#define NOINLINE __attribute__((noinline))
#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
#define GLOBAL
#define LOCAL
#define GLOBAL_ID item
#define GLOBAL_SIZE items
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

/* Vector types: f32x8 in registers, near_f32x8 in memory, aligned as its elements. */
#define VECTORS(N) \
    typedef f32 f32x##N __attribute__((vector_size(4 * N))); \
    typedef i32 i32x##N __attribute__((vector_size(4 * N))); \
    typedef u32 u32x##N __attribute__((vector_size(4 * N))); \
    typedef u8 u8x##N __attribute__((vector_size(N))); \
    typedef i8 i8x##N __attribute__((vector_size(N))); \
    typedef f32x##N near_f32x##N __attribute__((aligned(4), may_alias)); \
    typedef i32x##N near_i32x##N __attribute__((aligned(4), may_alias)); \
    typedef u32x##N near_u32x##N __attribute__((aligned(4), may_alias)); \
    typedef u8x##N near_u8x##N __attribute__((aligned(1), may_alias)); \
    typedef i8x##N near_i8x##N __attribute__((aligned(1), may_alias));
VECTORS(2) VECTORS(4) VECTORS(8) VECTORS(16)
/* Vectors of half as many lanes of 64 bits. */
#define DOUBLE_VECTORS(N) \
    typedef f64 f64x##N __attribute__((vector_size(8 * N))); \
    typedef i64 i64x##N __attribute__((vector_size(8 * N))); \
    typedef u64 u64x##N __attribute__((vector_size(8 * N))); \
    typedef f64x##N near_f64x##N __attribute__((aligned(8), may_alias));
DOUBLE_VECTORS(2) DOUBLE_VECTORS(4) DOUBLE_VECTORS(8)
#if LANES == 16
#define DOUBLES 8
#elif LANES == 8
#define DOUBLES 4
#else
#define DOUBLES 2
#endif

#define SPLATS(T) \
    FUNCTION T##x2 splat_##T##x2(T x) { return (T##x2){x, x}; } \
    FUNCTION T##x4 splat_##T##x4(T x) { return (T##x4){x, x, x, x}; } \
    FUNCTION T##x8 splat_##T##x8(T x) { return (T##x8){x, x, x, x, x, x, x, x}; } \
    FUNCTION T##x16 splat_##T##x16(T x) { \
        return (T##x16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; } \
    HALVES(T, 4, 2) HALVES(T, 8, 4) HALVES(T, 16, 8)
#define HALVES(T, N, M) \
    FUNCTION T##x##M low_##T##x##N(T##x##N v) { T##x##M r; memcpy(&r, &v, sizeof r); return r; } \
    FUNCTION T##x##M high_##T##x##N(T##x##N v) { \
        T##x##M r; memcpy(&r, (const char *)&v + sizeof r, sizeof r); return r; }
SPLATS(f32) SPLATS(i32) SPLATS(u32)
#define DOUBLE_SPLATS(T) \
    FUNCTION T##x2 splat_##T##x2(T x) { return (T##x2){x, x}; } \
    FUNCTION T##x4 splat_##T##x4(T x) { return (T##x4){x, x, x, x}; } \
    FUNCTION T##x8 splat_##T##x8(T x) { return (T##x8){x, x, x, x, x, x, x, x}; }
DOUBLE_SPLATS(f64) DOUBLE_SPLATS(i64)
#define SPLAT(type, x) splat_##type(x)
#define VECTOR(type, ...) ((type){__VA_ARGS__})
#define LANE(v, digit) ((v)[0x##digit])
#define HALF(v, which) _Generic((v), \
    f32x4: which##_f32x4, f32x8: which##_f32x8, f32x16: which##_f32x16, \
    i32x4: which##_i32x4, i32x8: which##_i32x8, i32x16: which##_i32x16, \
    u32x4: which##_u32x4, u32x8: which##_u32x8, u32x16: which##_u32x16)(v)
#define LOW(v) HALF(v, low)
#define HIGH(v) HALF(v, high)
#define SELECT(condition, x, y) ({ \
    __auto_type select_c = (condition); __auto_type select_x = (x); __auto_type select_y = (y); \
    (__typeof__(select_x))(((__typeof__(select_c))select_x & select_c) \
                           | ((__typeof__(select_c))select_y & ~select_c)); })
/* GCC 12 loads bytes that it widens one by one, unless they are in a register before. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define WIDENED(v, T) ({ \
    __auto_type narrow = (v); if (sizeof narrow < sizeof(T)) __asm__("" : "+v"(narrow)); \
    __builtin_convertvector(narrow, T); })
#else
#define WIDENED(v, T) __builtin_convertvector(v, T)
#endif
#define convert_int2(v) WIDENED(v, i32x2)
#define convert_int4(v) WIDENED(v, i32x4)
#define convert_int8(v) WIDENED(v, i32x8)
#define convert_int16(v) WIDENED(v, i32x16)
#define convert_uint2(v) __builtin_convertvector(v, u32x2)
#define convert_uint4(v) __builtin_convertvector(v, u32x4)
#define convert_uint8(v) __builtin_convertvector(v, u32x8)
#define convert_uint16(v) __builtin_convertvector(v, u32x16)
#define convert_float2(v) __builtin_convertvector(v, f32x2)
#define convert_float4(v) __builtin_convertvector(v, f32x4)
#define convert_float8(v) __builtin_convertvector(v, f32x8)
#define convert_float16(v) __builtin_convertvector(v, f32x16)
#define convert_char4(v) __builtin_convertvector(v, i8x4)
#define convert_char8(v) __builtin_convertvector(v, i8x8)
#define convert_char16(v) __builtin_convertvector(v, i8x16)
#define convert_uchar2(v) __builtin_convertvector(v, u8x2)
#define convert_uchar4(v) __builtin_convertvector(v, u8x4)
#define convert_uchar8(v) __builtin_convertvector(v, u8x8)
#define convert_uchar16(v) __builtin_convertvector(v, u8x16)
#define convert_long2(v) __builtin_convertvector(v, i64x2)
#define convert_long4(v) __builtin_convertvector(v, i64x4)
#define convert_long8(v) __builtin_convertvector(v, i64x8)
#define convert_double2(v) __builtin_convertvector(v, f64x2)
#define convert_double4(v) __builtin_convertvector(v, f64x4)
#define convert_double8(v) __builtin_convertvector(v, f64x8)
#define as_int2(v) ((i32x2)(v))
#define as_int4(v) ((i32x4)(v))
#define as_int8(v) ((i32x8)(v))
#define as_int16(v) ((i32x16)(v))
#define as_uint2(v) ((u32x2)(v))
#define as_uint4(v) ((u32x4)(v))
#define as_uint8(v) ((u32x8)(v))
#define as_uint16(v) ((u32x16)(v))

FUNCTION u32 bits_of_f32(f32 x) { u32 r; memcpy(&r, &x, 4); return r; }
FUNCTION f32 f32_of_bits(u32 x) { f32 r; memcpy(&r, &x, 4); return r; }
FUNCTION u64 bits_of_f64(f64 x) { u64 r; memcpy(&r, &x, 8); return r; }
FUNCTION f64 f64_of_bits(u64 x) { f64 r; memcpy(&r, &x, 8); return r; }
#define AS_U32(x) bits_of_f32(x)
#define AS_I32(x) ((i32)bits_of_f32(x))
#define AS_F32(x) f32_of_bits(x)
#define AS_U64(x) bits_of_f64(x)
#define AS_I64(x) ((i64)bits_of_f64(x))
#define AS_F64(x) f64_of_bits(x)
#define CHOICE(condition, x, y) ((condition) ? (x) : (y))
#define GUARDED(condition, value, otherwise) (value)
#define REPORT(word, code) __sync_val_compare_and_swap((i32 *)(word), 0, code)
#define ATOMIC_CAS_U32(place, old, new) __sync_val_compare_and_swap((u32 *)(place), old, new)
#define ATOMIC_CAS_U64(place, old, new) __sync_val_compare_and_swap((u64 *)(place), old, new)

/* Functions of vectors. Polynomials and the reduction of arguments are those of Cephes (S. Moshier);
   log1p and expm1 follow Kahan. Other functions are those of libm, lane by lane, and so are angles
   above MAX_ANGLE. docs/native.md states the bounds of their errors. */
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define VF PASTE(f32x, LANES)
#define VI PASTE(i32x, LANES)
#define OF(name) PASTE(PASTE(name, _), VF)
#define ALL(x) PASTE(splat_, VF)(x)
#define ONE_BY_ONE(name) FUNCTION VF OF(name)(VF x) { \
    VF r; UNROLL for (int i = 0; i < LANES; i++) r[i] = name##f(x[i]); return r; }
#define TWO_BY_TWO(name) FUNCTION VF OF(name)(VF x, VF y) { \
    VF r; UNROLL for (int i = 0; i < LANES; i++) r[i] = name##f(x[i], y[i]); return r; }
#if defined(__clang__) && __has_builtin(__builtin_elementwise_fma)
FUNCTION VF OF(fma)(VF x, VF y, VF z) { return __builtin_elementwise_fma(x, y, z); }
#elif LANES == 16 && defined(__AVX512F__) && !defined(__clang__)
FUNCTION VF OF(fma)(VF x, VF y, VF z) {
    return (VF)__builtin_ia32_vfmaddps512_mask(x, y, z, -1, 4); }
#elif LANES == 8 && defined(__FMA__) && !defined(__clang__)
FUNCTION VF OF(fma)(VF x, VF y, VF z) { return (VF)__builtin_ia32_vfmaddps256(x, y, z); }
#else
FUNCTION VF OF(fma)(VF x, VF y, VF z) {
    VF r; UNROLL for (int i = 0; i < LANES; i++) r[i] = __builtin_fmaf(x[i], y[i], z[i]); return r; }
#endif
FUNCTION VF OF(fabs)(VF x) { return (VF)((VI)x & 0x7fffffff); }
FUNCTION VF OF(copysign)(VF x, VF y) {
    return (VF)(((VI)x & 0x7fffffff) | ((VI)y & (i32)0x80000000)); }
/* x within two bounds, and NaN for NaN; x 2^n for a whole number n, which is rounded once. */
#if LANES == 16 && defined(__AVX512F__) && !defined(__clang__)
FUNCTION VF clamped(VF x, f32 low, f32 high) {
    x = (VF)__builtin_ia32_maxps512_mask(ALL(low), x, x, -1, 4);
    return (VF)__builtin_ia32_minps512_mask(ALL(high), x, x, -1, 4); }
FUNCTION VF scaled(VF x, VF n) { return (VF)__builtin_ia32_scalefps512_mask(x, n, x, -1, 4); }
#else
FUNCTION VF clamped(VF x, f32 low, f32 high) {
    x = SELECT(x < low, ALL(low), x);
    return SELECT(x > high, ALL(high), x); }
FUNCTION VF scaled(VF x, VF n) {
    VI k = __builtin_convertvector(n, VI), half = k >> 1;
    return x * (VF)((half + 127) << 23) * (VF)((k - half + 127) << 23); }
#endif
/* x / y for one y: by its reciprocal and a correction (P. Markstein). It is rounded as a division,
   or off by a unit in the last place where the remainder is subnormal. The correction would give
   -0 the sign of a sum. */
#if LANES == 16 && defined(__AVX512F__) && !defined(__clang__)
#define IS_ANY_NAN(x) __builtin_ia32_cmpps512_mask(x, x, 3, -1, 4)
#elif LANES == 8 && defined(__AVX__)
#define IS_ANY_NAN(x) __builtin_ia32_movmskps256((VF)((x) != (x)))
#endif
#if defined(IS_ANY_NAN)
FUNCTION VF divided(VF x, f32 y) {
    if (!(fabsf(y) > 1e-18f && fabsf(y) < 1e18f)) return x / y;
    VF r = ALL(1.0f / y), q = x * r;
    VI sign = (VI)q & (1 << 31);
    q = OF(fma)(OF(fma)(-q, ALL(y), x), r, q);
    return IS_ANY_NAN(q) ? x / y : (VF)((VI)q | sign); }
#else
FUNCTION VF divided(VF x, f32 y) { return x / y; }
#endif
#define DIVIDED(x, y) divided(x, y)
/* 2^n e^r for |r| within half of ln 2. */
FUNCTION VF scaled_exp(VF r, VF n) {
    VF p = OF(fma)(ALL(1.9875691500e-4f), r, ALL(1.3981999507e-3f));
    p = OF(fma)(p, r, ALL(8.3334519073e-3f)); p = OF(fma)(p, r, ALL(4.1665795894e-2f));
    p = OF(fma)(p, r, ALL(1.6666665459e-1f)); p = OF(fma)(p, r, ALL(5.0000001201e-1f));
    return scaled(OF(fma)(p, r * r, r) + 1.0f, n); }
/* 2^shift e^x: the shift reaches the results of which half is finite. */
FUNCTION VF shifted_exp(VF given, f32 shift) {
    VF x = clamped(given, -104.0f, 90.0f);
    VF n = OF(fma)(x, ALL(1.44269504f), ALL(12582912.0f)) - 12582912.0f;
    VF r = OF(fma)(n, ALL(-0.693359375f), x);
    return scaled_exp(OF(fma)(n, ALL(2.12194440e-4f), r), n + shift); }
FUNCTION VF OF(exp)(VF x) { return shifted_exp(x, 0.0f); }
FUNCTION VF OF(exp2)(VF given) {
    VF x = clamped(given, -151.0f, 129.0f), n = (x + 12582912.0f) - 12582912.0f;
    return scaled_exp((x - n) * 0.693147180559945f, n); }
/* A positive number as 2^exponent (1 + m), with 1 + m between sqrt(1 / 2) and sqrt(2). */
FUNCTION VF mantissa(VF given, VF *exponent) {
    VI tiny = given < 1.17549435e-38f;
    VF x = SELECT(tiny, given * 8388608.0f, given);
    VI bits = (VI)x - 0x3f3504f3, e = bits >> 23;
    *exponent = __builtin_convertvector(e, VF) - SELECT(tiny, ALL(23.0f), ALL(0.0f));
    return (VF)((bits & 0x7fffff) + 0x3f3504f3) - 1.0f; }
/* log(1 + m) - m + m^2 / 2. */
FUNCTION VF log_tail(VF m) {
    VF p = OF(fma)(m, ALL(7.0376836292e-2f), ALL(-1.1514610310e-1f));
    p = OF(fma)(p, m, ALL(1.1676998740e-1f)); p = OF(fma)(p, m, ALL(-1.2420140846e-1f));
    p = OF(fma)(p, m, ALL(1.4249322787e-1f)); p = OF(fma)(p, m, ALL(-1.6668057665e-1f));
    p = OF(fma)(p, m, ALL(2.0000714765e-1f)); p = OF(fma)(p, m, ALL(-2.4999993993e-1f));
    p = OF(fma)(p, m, ALL(3.3333331174e-1f));
    return p * m * (m * m); }
FUNCTION VF log_of(VF given, VF r) {
    r = SELECT(given == 0.0f, ALL(-INFINITY), r);
    r = SELECT(given < 0.0f, ALL(NAN), r);
    return SELECT((given != given) | (given == INFINITY), given, r); }
FUNCTION VF OF(log)(VF given) {
    VF k, m = mantissa(given, &k), p = log_tail(m);
    p = OF(fma)(k, ALL(-2.12194440e-4f), p); p = OF(fma)(m * m, ALL(-0.5f), p);
    return log_of(given, OF(fma)(k, ALL(0.693359375f), m + p)); }
FUNCTION VF OF(log2)(VF given) {
    VF k, m = mantissa(given, &k), p = OF(fma)(m * m, ALL(-0.5f), log_tail(m));
    VF r = OF(fma)(m, ALL(0.442695041f), p * 0.442695041f); /* log2(e) - 1 */
    return log_of(given, r + p + m + k); }
FUNCTION VF OF(log10)(VF given) {
    VF k, m = mantissa(given, &k), p = OF(fma)(m * m, ALL(-0.5f), log_tail(m));
    VF r = (m + p) * 7.00731903251827651129e-4f; /* log10(e) and log10(2) in two numbers */
    r = OF(fma)(p, ALL(4.3359375e-1f), r); r = OF(fma)(k, ALL(2.48745663981195213739e-4f), r);
    r = OF(fma)(m, ALL(4.3359375e-1f), r);
    return log_of(given, OF(fma)(k, ALL(3.0078125e-1f), r)); }
FUNCTION VF OF(log1p)(VF x) {
    VF u = x + 1.0f, r = OF(log)(u) * (x / (u - 1.0f));
    r = SELECT(u == 1.0f, x, r);
    return SELECT((x == INFINITY) | (u == 0.0f), OF(log)(u), r); }
FUNCTION VF OF(expm1)(VF x) {
    VF u = OF(exp)(x), v = u - 1.0f, r = v * x / OF(log)(u);
    r = SELECT(u == 1.0f, x, r);
    return SELECT((v == -1.0f) | (x > 60.0f), v, r); }
/* Below this bound the reduction by multiples of pi / 4 is exact enough. */
#define MAX_ANGLE 8192.0f
FUNCTION bool is_any_large(VF x) {
    VI large = OF(fabs)(x) > MAX_ANGLE;
    i32 any = 0;
    UNROLL for (int i = 0; i < LANES; i++) any |= large[i];
    return any != 0; }
FUNCTION VF sine_of(VF x, VI quadrant, VI sign) {
    /* x is within pi / 4; odd quadrants take the cosine. */
    VF z = x * x;
    VF c = OF(fma)(ALL(2.443315711809948e-5f), z, ALL(-1.388731625493765e-3f));
    c = OF(fma)(c, z, ALL(4.166664568298827e-2f)) * z * z;
    c = OF(fma)(z, ALL(-0.5f), c) + 1.0f;
    VF s = OF(fma)(ALL(-1.9515295891e-4f), z, ALL(8.3321608736e-3f));
    s = OF(fma)(s, z, ALL(-1.6666654611e-1f));
    s = OF(fma)(s * z, x, x);
    VF r = SELECT((quadrant & 1) != 0, c, s);
    return (VF)((VI)r ^ sign); }
FUNCTION VF reduced_angle(VF x, VI *quadrant) {
    VF shifted = x * 0.636619772367581f + 12582912.0f, n = shifted - 12582912.0f;
    *quadrant = (VI)shifted - 0x4b400000;
    x = OF(fma)(n, ALL(-0x1.921fb6p0f), x); /* pi / 2 in three numbers */
    x = OF(fma)(n, ALL(0x1.777a5cp-25f), x);
    return OF(fma)(n, ALL(0x1.ee59dap-50f), x); }
FUNCTION VF OF(sin)(VF x) {
    VF r;
    if (is_any_large(x)) { for (int i = 0; i < LANES; i++) r[i] = sinf(x[i]); return r; }
    VI quadrant;
    r = reduced_angle(x, &quadrant);
    return SELECT(x == 0.0f, x, sine_of(r, quadrant, (quadrant & 2) << 30)); }
FUNCTION VF OF(cos)(VF x) {
    VF r;
    if (is_any_large(x)) { for (int i = 0; i < LANES; i++) r[i] = cosf(x[i]); return r; }
    VI quadrant;
    r = reduced_angle(x, &quadrant);
    return sine_of(r, quadrant + 1, ((quadrant + 1) & 2) << 30); }
FUNCTION VF OF(tan)(VF x) {
    VF r;
    if (is_any_large(x)) { for (int i = 0; i < LANES; i++) r[i] = tanf(x[i]); return r; }
    VI quadrant;
    r = reduced_angle(x, &quadrant);
    VF z = r * r, p = OF(fma)(ALL(9.38540185543e-3f), z, ALL(3.11992232697e-3f));
    p = OF(fma)(p, z, ALL(2.44301354525e-2f)); p = OF(fma)(p, z, ALL(5.34112807005e-2f));
    p = OF(fma)(p, z, ALL(1.33387994085e-1f)); p = OF(fma)(p, z, ALL(3.33331568548e-1f));
    p = OF(fma)(p * z, r, r);
    p = SELECT((quadrant & 1) != 0, -1.0f / p, p);
    return SELECT(x == 0.0f, x, p); }
FUNCTION VF OF(atan)(VF x) {
    VF a = OF(fabs)(x);
    VI far = a > 2.414213562373095f, middle = a > 0.4142135623730950f;
    VF above = SELECT(far, ALL(-1.0f), SELECT(middle, a - 1.0f, a));
    VF below = SELECT(far, a, SELECT(middle, a + 1.0f, ALL(1.0f)));
    VF angle = SELECT(far, ALL(1.57079632679489662f),
                      SELECT(middle, ALL(0.785398163397448310f), ALL(0.0f)));
    VF r = above / below, z = r * r;
    VF p = OF(fma)(ALL(8.05374449538e-2f), z, ALL(-1.38776856032e-1f));
    p = OF(fma)(p, z, ALL(1.99777106478e-1f)); p = OF(fma)(p, z, ALL(-3.33329491539e-1f));
    return OF(copysign)(OF(fma)(p * z, r, r) + angle, x); }
ONE_BY_ONE(sqrt) ONE_BY_ONE(floor) ONE_BY_ONE(ceil) ONE_BY_ONE(trunc)
/* A float of 2^23 or more is whole; a smaller one is rounded by the addition of 2^23. */
FUNCTION VF OF(rint)(VF x) {
    VF a = OF(fabs)(x), whole = (a + 8388608.0f) - 8388608.0f;
    return SELECT(a < 8388608.0f, OF(copysign)(whole, x), x); }
/* asin(x) for x up to 1 / 2, and asin(sqrt((1 - x) / 2)) above. */
FUNCTION VF half_asin(VF a, VI is_above) {
    VF z = SELECT(is_above, (1.0f - a) * 0.5f, a * a), r = SELECT(is_above, OF(sqrt)(z), a);
    VF p = OF(fma)(ALL(4.2163199048e-2f), z, ALL(2.4181311049e-2f));
    p = OF(fma)(p, z, ALL(4.5470025998e-2f)); p = OF(fma)(p, z, ALL(7.4953002686e-2f));
    p = OF(fma)(p, z, ALL(1.6666752422e-1f));
    return OF(fma)(p * z, r, r); }
FUNCTION VF OF(asin)(VF x) {
    VF a = OF(fabs)(x);
    VI is_above = a > 0.5f;
    VF r = half_asin(a, is_above);
    return OF(copysign)(SELECT(is_above, 1.57079632679489662f - (r + r), r), x); }
FUNCTION VF OF(acos)(VF x) {
    VF a = OF(fabs)(x);
    VI is_above = a > 0.5f;
    VF r = half_asin(a, is_above);
    VF far = SELECT(x < 0.0f, 3.14159265358979324f - (r + r), r + r);
    VF near = 1.57079632679489662f - (OF(copysign)(r, x) - -4.37113883e-8f); /* pi / 2 in two */
    return SELECT(is_above, far, near); }
FUNCTION VF OF(sinh)(VF x) {
    VF a = OF(fabs)(x), half = shifted_exp(a, -1.0f), z = x * x;
    VF p = OF(fma)(ALL(2.03721912945e-4f), z, ALL(8.33028376239e-3f));
    p = OF(fma)(p, z, ALL(1.66667160211e-1f));
    p = OF(fma)(p * z, x, x);
    return SELECT(a > 1.0f, OF(copysign)(half - 0.25f / half, x), p); }
FUNCTION VF OF(cosh)(VF x) {
    VF half = shifted_exp(OF(fabs)(x), -1.0f);
    return half + 0.25f / half; }
/* log(x) + log(2), for large x. */
FUNCTION VF log_of_double(VF x) { return OF(log)(x) + 0.693147180559945f; }
FUNCTION VF OF(asinh)(VF x) {
    VF a = OF(fabs)(x), z = a * a, r = OF(log1p)(a + z / (1.0f + OF(sqrt)(z + 1.0f)));
    VF p = OF(fma)(ALL(2.0122003309e-2f), z, ALL(-4.2699340972e-2f));
    p = OF(fma)(p, z, ALL(7.4847586088e-2f)); p = OF(fma)(p, z, ALL(-1.6666288134e-1f));
    p = OF(fma)(p * z, a, a);
    return OF(copysign)(SELECT(a > 1e9f, log_of_double(a), SELECT(a < 0.5f, p, r)), x); }
FUNCTION VF OF(acosh)(VF x) {
    VF t = x - 1.0f, r = OF(log1p)(t + OF(sqrt)(t * (t + 2.0f)));
    VF p = OF(fma)(ALL(1.7596881071e-3f), t, ALL(-7.5272886713e-3f));
    p = OF(fma)(p, t, ALL(2.6454905019e-2f)); p = OF(fma)(p, t, ALL(-1.1784741703e-1f));
    p = OF(fma)(p, t, ALL(1.4142135263f)) * OF(sqrt)(t);
    return SELECT(x > 1e9f, log_of_double(x), SELECT(x < 1.0f, ALL(NAN), SELECT(t < 0.5f, p, r))); }
FUNCTION VF OF(atanh)(VF x) {
    VF a = OF(fabs)(x), z = a * a, r = 0.5f * OF(log1p)((a + a) / (1.0f - a));
    VF p = OF(fma)(ALL(1.81740078349e-1f), z, ALL(8.24370301058e-2f));
    p = OF(fma)(p, z, ALL(1.46691431730e-1f)); p = OF(fma)(p, z, ALL(1.99782164500e-1f));
    p = OF(fma)(p, z, ALL(3.33337300303e-1f));
    p = OF(fma)(p * z, a, a);
    return OF(copysign)(SELECT(a < 0.5f, p, r), x); }
FUNCTION VF OF(cbrt)(VF given) {
    /* Two steps of Halley from a third of the exponent; powers of 8 keep them within the range. */
    VF a = OF(fabs)(given);
    VI small = a < 0x1p-90f, large = a > 0x1p90f;
    VF x = a * SELECT(small, ALL(0x1p60f), SELECT(large, ALL(0x1p-60f), ALL(1.0f)));
    VF third = __builtin_convertvector((VI)x, VF) * 0.333333333f;
    VF t = (VF)(__builtin_convertvector(third, VI) + 0x2a5137a0), c = t * t * t;
    t = t * (c + (x + x)) / (c + (c + x));
    VF square = t * t, rest = OF(fma)(square, t, -x);
    t = t - t * (rest / OF(fma)(square + square, t, x));
    t = t * SELECT(small, ALL(0x1p-20f), SELECT(large, ALL(0x1p20f), ALL(1.0f)));
    VI same = (given != given) | (a == INFINITY) | (a == 0.0f);
    return SELECT(same, given, OF(copysign)(t, given)); }
FUNCTION VF OF(pow)(VF x, VF y) {
    /* 2^(y log2 |x|), with the logarithm, 2 atanh(s), and the product in two numbers each. */
    VF a = OF(fabs)(x), k, m = mantissa(a, &k);
    VF b = m + 2.0f, b1 = m - (b - 2.0f), s = m / b;
    VF s1 = (OF(fma)(-s, b, m) - s * b1) / b;
    VF z = s * s, z1 = OF(fma)(s, s, -z) + 2.0f * s * s1;
    VF q = OF(fma)(z, ALL(0.0927f), ALL(0.111111111f)); /* 1 / 11 and what follows it */
    q = OF(fma)(q, z, ALL(0.142857143f)); q = OF(fma)(q, z, ALL(0.2f)) * z;
    VF u = q + 0.333333343f, u1 = q - (u - 0.333333343f) - 9.934107e-9f;
    VF w = z * u, w1 = OF(fma)(z, u, -w) + (z * u1 + z1 * u);
    VF p = s * w, p1 = OF(fma)(s, w, -p) + (s * w1 + s1 * w);
    VF l = s + p, l1 = p - (l - s) + (p1 + s1);
    VF r = l * 2.88539004f, r1 = OF(fma)(l, ALL(2.88539004f), -r); /* 2 / ln(2) in two numbers */
    r1 = OF(fma)(l, ALL(3.851926e-8f), OF(fma)(l1, ALL(2.88539004f), r1));
    VF t = k + r, t1 = r - (t - k) + r1;
    t = SELECT(a == 0.0f, ALL(-INFINITY), SELECT(a == INFINITY, ALL(INFINITY), t));
    VF n = y * t, n1 = OF(fma)(y, t, -n) + y * t1;
    VI within = (n > -151.0f) & (n < 129.0f);
    n = SELECT(n <= -151.0f, ALL(-151.0f), SELECT(n >= 129.0f, ALL(129.0f), n));
    n1 = SELECT(within, n1, ALL(0.0f));
    VF whole = (n + 12582912.0f) - 12582912.0f, f = n - whole + n1;
    VF found = scaled_exp(f * 0.693147180559945f, whole);
    VI whole_y = __builtin_convertvector(SELECT(OF(fabs)(y) < 16777216.0f, y, ALL(0.0f)), VI);
    VI is_whole = (__builtin_convertvector(whole_y, VF) == y) | (OF(fabs)(y) >= 16777216.0f);
    VI sign = (VI)x & ((whole_y & is_whole) << 31);
    found = (VF)((VI)found | sign);
    VI is_negative = (x < 0.0f) & (a != INFINITY);
    found = SELECT((is_negative & ~is_whole) | (x != x) | (y != y), ALL(NAN), found);
    VI is_one = (y == 0.0f) | (x == 1.0f) | ((a == 1.0f) & (OF(fabs)(y) == INFINITY));
    return SELECT(is_one, ALL(1.0f), found); }
TWO_BY_TWO(hypot) TWO_BY_TWO(atan2) TWO_BY_TWO(fmod)

/* The same of float64. Coefficients of log and log1p are those of FDLIBM. */
#define VD PASTE(f64x, DOUBLES)
#define VL PASTE(i64x, DOUBLES)
#define VUL PASTE(u64x, DOUBLES)
#define OFD(name) PASTE(PASTE(name, _), VD)
#define ALLD(x) PASTE(splat_, VD)(x)
#define ONE_DOUBLE(name, of_one) FUNCTION VD OFD(name)(VD x) { \
    VD r; UNROLL for (int i = 0; i < DOUBLES; i++) r[i] = of_one(x[i]); return r; }
#define TWO_DOUBLES(name) FUNCTION VD OFD(name)(VD x, VD y) { \
    VD r; UNROLL for (int i = 0; i < DOUBLES; i++) r[i] = name(x[i], y[i]); return r; }
#if defined(__clang__) && __has_builtin(__builtin_elementwise_fma)
FUNCTION VD OFD(fma)(VD x, VD y, VD z) { return __builtin_elementwise_fma(x, y, z); }
#elif LANES == 16 && defined(__AVX512F__) && !defined(__clang__)
FUNCTION VD OFD(fma)(VD x, VD y, VD z) {
    return (VD)__builtin_ia32_vfmaddpd512_mask(x, y, z, -1, 4); }
#elif LANES == 8 && defined(__FMA__) && !defined(__clang__)
FUNCTION VD OFD(fma)(VD x, VD y, VD z) { return (VD)__builtin_ia32_vfmaddpd256(x, y, z); }
#elif defined(__FMA__) || defined(__ARM_FEATURE_FMA)
FUNCTION VD OFD(fma)(VD x, VD y, VD z) {
    VD r; UNROLL for (int i = 0; i < DOUBLES; i++) r[i] = __builtin_fma(x[i], y[i], z[i]);
    return r; }
#else /* In software it would take too long. */
FUNCTION VD OFD(fma)(VD x, VD y, VD z) { return x * y + z; }
#endif
#if LANES == 16 && defined(__AVX512F__) && !defined(__clang__)
FUNCTION VD scaled_double(VD x, VD n) {
    return (VD)__builtin_ia32_scalefpd512_mask(x, n, x, -1, 4); }
FUNCTION VD OFD(sqrt)(VD x) { return (VD)__builtin_ia32_sqrtpd512_mask(x, x, -1, 4); }
#else
FUNCTION VD scaled_double(VD x, VD n) {
    VUL k = (VUL)(n + 0x1.8p52) - 0x4338000000000000u, half = ((k + 4096) >> 1) - 2048;
    return x * (VD)((half + 1023) << 52) * (VD)((k - half + 1023) << 52); }
ONE_DOUBLE(sqrt, sqrt)
#endif
FUNCTION VD OFD(fabs)(VD x) { return (VD)((VL)x & 0x7fffffffffffffff); }
FUNCTION VD OFD(copysign)(VD x, VD y) {
    return (VD)(((VL)x & 0x7fffffffffffffff) | ((VL)y & (i64)0x8000000000000000)); }
/* e^r - 1 for the r within half of ln 2 with x = n ln 2 + r, for x in the range of exp. */
FUNCTION VD reduced_expm1(VD given, VD *n) {
    VD x = SELECT(given < -746.0, ALLD(-746.0), given);
    x = SELECT(x > 710.0, ALLD(710.0), x);
    *n = OFD(fma)(x, ALLD(1.4426950408889634), ALLD(0x1.8p52)) - 0x1.8p52;
    VD r = OFD(fma)(*n, ALLD(-6.93147180369123816490e-01), x);
    r = OFD(fma)(*n, ALLD(-1.90821492927058770002e-10), r);
    VD p = OFD(fma)(ALLD(2.0914686968086876e-09), r, ALLD(2.5105217004720745e-08));
    p = OFD(fma)(p, r, ALLD(2.75572736431103e-07));
    p = OFD(fma)(p, r, ALLD(2.7557255400206422e-06));
    p = OFD(fma)(p, r, ALLD(2.4801587325547743e-05));
    p = OFD(fma)(p, r, ALLD(0.00019841269874820627));
    p = OFD(fma)(p, r, ALLD(0.0013888888888883748)); p = OFD(fma)(p, r, ALLD(0.008333333333326136));
    p = OFD(fma)(p, r, ALLD(0.04166666666666667)); p = OFD(fma)(p, r, ALLD(0.1666666666666667));
    p = OFD(fma)(p, r, ALLD(0.5));
    return OFD(fma)(p, r * r, r); }
FUNCTION VD OFD(exp)(VD x) {
    VD n, r = reduced_expm1(x, &n);
    return scaled_double(r + 1.0, n); }
FUNCTION VD OFD(expm1)(VD x) {
    VD n, r = reduced_expm1(x, &n), large = scaled_double(r + 1.0, n);
    VD power = scaled_double(ALLD(1.0), n), small = OFD(fma)(r, power, power - 1.0);
    return SELECT(x == 0.0, x, SELECT(n > 60.0, large, small)); }
/* A positive number as 2^exponent (1 + m), with 1 + m between sqrt(1 / 2) and sqrt(2). */
FUNCTION VD double_mantissa(VD given, VD *exponent) {
    VL tiny = given < 0x1p-1022;
    VUL bits = (VUL)SELECT(tiny, given * 0x1p54, given) - 0x3fe6a09e667f3bcdu;
    VUL e = (bits + (1024ull << 52)) >> 52;
    VD whole = (VD)(e + (0x4338000000000000u - 1024)) - 0x1.8p52;
    *exponent = whole - SELECT(tiny, ALLD(54.0), ALLD(0.0));
    return (VD)((bits & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu) - 1.0; }
/* log(1 + m) + k ln 2, with a correction. */
FUNCTION VD double_log(VD m, VD k, VD correction) {
    VD s = m / (m + 2.0), z = s * s, half = 0.5 * m * m;
    VD p = OFD(fma)(ALLD(1.479819860511658591e-01), z, ALLD(1.531383769920937332e-01));
    p = OFD(fma)(p, z, ALLD(1.818357216161805012e-01));
    p = OFD(fma)(p, z, ALLD(2.222219843214978396e-01));
    p = OFD(fma)(p, z, ALLD(2.857142874366239149e-01));
    p = OFD(fma)(p, z, ALLD(3.999999999940941908e-01));
    p = OFD(fma)(p, z, ALLD(6.666666666666735130e-01));
    VD low = OFD(fma)(k, ALLD(1.90821492927058770002e-10), correction);
    low = OFD(fma)(s, OFD(fma)(p, z, half), low);
    return OFD(fma)(k, ALLD(6.93147180369123816490e-01), m - (half - low)); }
FUNCTION VD double_log_of(VD given, VD r) {
    r = SELECT(given == 0.0, ALLD(-INFINITY), r);
    r = SELECT(given < 0.0, ALLD(NAN), r);
    return SELECT((given != given) | (given == INFINITY), given, r); }
FUNCTION VD OFD(log)(VD given) {
    VD k, m = double_mantissa(given, &k);
    return double_log_of(given, double_log(m, k, ALLD(0.0))); }
FUNCTION VD OFD(log1p)(VD x) {
    VD u = x + 1.0, k, m = double_mantissa(u, &k);
    VD one = u - x, rest = ((x - (u - one)) + (1.0 - one)) / u;
    VL near = k == 0.0;
    VD r = double_log(SELECT(near, x, m), k, SELECT(near, ALLD(0.0), rest));
    return SELECT(x == 0.0, x, double_log_of(u, r)); }
FUNCTION VD OFD(rint)(VD x) {
    VD a = OFD(fabs)(x), whole = (a + 0x1p52) - 0x1p52;
    return SELECT(a < 0x1p52, OFD(copysign)(whole, x), x); }
/* Below this bound the reduction by multiples of pi / 2 is exact enough. */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define MAX_DOUBLE_ANGLE 1e6
FUNCTION bool is_any_double_large(VD x) {
    VL large = (VL)~(OFD(fabs)(x) < MAX_DOUBLE_ANGLE);
    i64 any = 0;
    UNROLL for (int i = 0; i < DOUBLES; i++) any |= large[i];
    return any != 0; }
/* The sine for a quadrant 0, the cosine for 1: x and its low part are within pi / 4. */
FUNCTION VD double_sine(VD given, i64 first) {
    VD shifted = OFD(fma)(given, ALLD(0.6366197723675814), ALLD(0x1.8p52)), n = shifted - 0x1.8p52;
    VL quadrant = (VL)shifted + first; /* the bits above those of the quadrant do not matter */
    VD above = OFD(fma)(n, ALLD(-0x1.921fb54442d18p+0), given); /* exact */
    /* A product that is not contracted. */
    VD step = OFD(fma)(n, ALLD(0x1.1a62633145c07p-54), ALLD(0.0)), x = above - step;
    VD low = (above - x - step) - OFD(fma)(n, ALLD(0x1.1a62633145c07p-54), -step);
    low = OFD(fma)(n, ALLD(0x1.f1976b7ed8fbcp-110), low);
    VD z = x * x, half = 0.5 * z, w = 1.0 - half;
    VD s = OFD(fma)(ALLD(1.58969099521155010221e-10), z, ALLD(-2.50507602534068634195e-08));
    s = OFD(fma)(s, z, ALLD(2.75573137070700676789e-06));
    s = OFD(fma)(s, z, ALLD(-1.98412698298579493134e-04));
    s = OFD(fma)(s, z, ALLD(8.33333333332248946124e-03));
    VD c = OFD(fma)(ALLD(-1.13596475577881948265e-11), z, ALLD(2.08757232129817482790e-09));
    c = OFD(fma)(c, z, ALLD(-2.75573143513906633035e-07));
    c = OFD(fma)(c, z, ALLD(2.48015872894767294178e-05));
    c = OFD(fma)(c, z, ALLD(-1.38888888888741095749e-03));
    c = OFD(fma)(c, z, ALLD(4.16666666666666019037e-02));
    s = x - ((z * (0.5 * low - z * x * s) - low) - z * x * -1.66666666666666324348e-01);
    c = w + (((1.0 - w) - half) + (z * (z * c) - x * low));
    return (VD)((VL)SELECT((quadrant & 1) != 0, c, s) ^ ((quadrant & 2) << 62)); }
FUNCTION VD OFD(sin)(VD x) {
    VD r;
    if (is_any_double_large(x)) { for (int i = 0; i < DOUBLES; i++) r[i] = sin(x[i]); return r; }
    return SELECT(x == 0.0, x, double_sine(x, 0)); }
FUNCTION VD OFD(cos)(VD x) {
    VD r;
    if (is_any_double_large(x)) { for (int i = 0; i < DOUBLES; i++) r[i] = cos(x[i]); return r; }
    return double_sine(x, 1); }
#else
ONE_DOUBLE(sin, sin) ONE_DOUBLE(cos, cos)
#endif
ONE_DOUBLE(tan, tan) ONE_DOUBLE(asin, asin) ONE_DOUBLE(acos, acos)
ONE_DOUBLE(atan, atan) ONE_DOUBLE(sinh, sinh) ONE_DOUBLE(cosh, cosh)
ONE_DOUBLE(asinh, asinh) ONE_DOUBLE(atanh, atanh)
ONE_DOUBLE(exp2, exp2) ONE_DOUBLE(log2, log2) ONE_DOUBLE(log10, log10)
ONE_DOUBLE(cbrt, cbrt) ONE_DOUBLE(floor, floor)
ONE_DOUBLE(ceil, ceil) ONE_DOUBLE(trunc, trunc)
TWO_DOUBLES(hypot) TWO_DOUBLES(atan2) TWO_DOUBLES(fmod) TWO_DOUBLES(pow)
/* That of musl gives numbers for some arguments below 1. */
FUNCTION f64 f64_acosh(f64 x) { return x < 1 ? NAN : acosh(x); }
ONE_DOUBLE(acosh, f64_acosh)
#define CALL(name, x) _Generic((x), VF: OF(name), VD: OFD(name), f64: name, default: name##f)
#define sqrt(x) CALL(sqrt, x)(x)
#define exp(x) CALL(exp, x)(x)
#define log(x) CALL(log, x)(x)
#define sin(x) CALL(sin, x)(x)
#define cos(x) CALL(cos, x)(x)
#define tan(x) CALL(tan, x)(x)
#define asin(x) CALL(asin, x)(x)
#define acos(x) CALL(acos, x)(x)
#define atan(x) CALL(atan, x)(x)
#define sinh(x) CALL(sinh, x)(x)
#define cosh(x) CALL(cosh, x)(x)
#define asinh(x) CALL(asinh, x)(x)
#define acosh(x) _Generic((x), VF: OF(acosh), VD: OFD(acosh), f64: f64_acosh, default: acoshf)(x)
#define atanh(x) CALL(atanh, x)(x)
#define exp2(x) CALL(exp2, x)(x)
#define expm1(x) CALL(expm1, x)(x)
#define log1p(x) CALL(log1p, x)(x)
#define log2(x) CALL(log2, x)(x)
#define log10(x) CALL(log10, x)(x)
#define cbrt(x) CALL(cbrt, x)(x)
#define floor(x) CALL(floor, x)(x)
#define ceil(x) CALL(ceil, x)(x)
#define trunc(x) CALL(trunc, x)(x)
#define rint(x) CALL(rint, x)(x)
#define fabs(x) CALL(fabs, x)(x)
#define hypot(x, y) CALL(hypot, x)(x, y)
#define atan2(x, y) CALL(atan2, x)(x, y)
#define pow(x, y) CALL(pow, x)(x, y)
#define fmod(x, y) CALL(fmod, x)(x, y)
#define copysign(x, y) CALL(copysign, x)(x, y)

#define FMA(x, y, z) _Generic((x), VF: OF(fma), f64: __builtin_fma, default: __builtin_fmaf)(x, y, z)

/* Sums of products of four bytes: to each lane of c those of the unsigned bytes of a and the signed
   bytes of that lane of b. */
#define VU PASTE(u32x, LANES)
#define BYTE_PAIRS PASTE(PASTE(i16x, LANES), _pairs)
typedef int16_t BYTE_PAIRS __attribute__((vector_size(4 * LANES)));
#if LANES == 16 && defined(__AVX512VNNI__) \
    || LANES == 8 && defined(__AVX512VNNI__) && defined(__AVX512VL__)
FUNCTION VU dot4(VU c, VU a, VU b) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b)); return c; }
#elif LANES == 8 && defined(__AVXVNNI__)
FUNCTION VU dot4(VU c, VU a, VU b) {
    __asm__("{vex} vpdpbusd %2, %1, %0" : "+x"(c) : "x"(a), "x"(b)); return c; }
#elif LANES == 4 && defined(__ARM_FEATURE_MATMUL_INT8)
FUNCTION VU dot4(VU c, VU a, VU b) {
    __asm__("usdot %0.4s, %1.16b, %2.16b" : "+w"(c) : "w"(a), "w"(b)); return c; }
#elif LANES == 4 && defined(__ARM_FEATURE_DOTPROD)
FUNCTION VU signed_dot4(VU c, VU a, VU b) {
    __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(c) : "w"(a), "w"(b)); return c; }
FUNCTION VU dot4(VU c, VU a, VU b) { /* a - 128 is signed, and twice 64 is 128 */
    VU part = signed_dot4(PASTE(splat_, VU)(0), PASTE(splat_, VU)(0x40404040), b);
    return signed_dot4(c, a ^ 0x80808080u, b) + (part + part); }
#elif LANES == 16 && defined(__AVX512BW__) || LANES == 8 && defined(__AVX2__)
FUNCTION VU pair_sums(VU a, VU b) {
    VU r; __asm__("vpmaddwd %2, %1, %0" : "=v"(r) : "v"(a), "v"(b)); return r; }
FUNCTION VU dot4(VU c, VU a, VU b) {
    VU odd = (VU)((BYTE_PAIRS)b >> 8), even = (VU)((BYTE_PAIRS)(b << 8) >> 8);
    return c + pair_sums(a & 0x00ff00ffu, even) + pair_sums((a >> 8) & 0x00ff00ffu, odd); }
#else
FUNCTION VU dot4(VU c, VU a, VU b) {
    UNROLL for (int i = 0; i < 32; i += 8)
        c += ((a >> i) & 255u) * (VU)((VI)(b << (24 - i)) >> 24);
    return c; }
#endif
#define DOT4(c, a, b) dot4(c, PASTE(splat_, VU)(a), b)
#define DOT4_BY_SIGNED(c, a, b) dot4(c, a, PASTE(splat_, VU)(b))

/* What the runtime offers to programs; see runtime.c. */
typedef void weft_work(char *const *b, i64 item, i64 items);
struct weft_runtime {
    void (*run)(weft_work *work, char *const *b, i64 items);
    void (*gemm)(const i64 *shape, const void *x, const void *y, void *out);
    int (*poll)(void);
    i64 (*clock)(void);
};
