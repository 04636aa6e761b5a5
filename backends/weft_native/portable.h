/* The dialect of exported programs: C11 with libm, scalars only, in one thread. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#if defined(__GNUC__)
#define UNUSED __attribute__((unused))
#define ANY_TYPE __attribute__((may_alias))
/* Of kernels, as in prelude.h. */
#define NOINLINE __attribute__((noinline))
/* For some shapes a name is not used, or a comparison has one outcome. */
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wtype-limits"
#pragma GCC diagnostic ignored "-Wtautological-compare"
#else
#define UNUSED
#define NOINLINE
#define ANY_TYPE
#endif
/* Buffers hold values of different types in turn. */
typedef int8_t i8 ANY_TYPE; typedef int16_t i16 ANY_TYPE;
typedef int32_t i32 ANY_TYPE; typedef int64_t i64 ANY_TYPE;
typedef uint8_t u8 ANY_TYPE; typedef uint16_t u16 ANY_TYPE;
typedef uint32_t u32 ANY_TYPE; typedef uint64_t u64 ANY_TYPE;
typedef float f32 ANY_TYPE; typedef double f64 ANY_TYPE;
typedef int32_t index_t;
#define FUNCTION UNUSED static inline
#define GLOBAL
#define LOCAL
#define GLOBAL_ID item
#define GLOBAL_SIZE items
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
#define REPORT(word, code) (*(word) = *(word) ? *(word) : (code))
FUNCTION u32 exchange_u32(u32 *place, u32 old, u32 new) {
    u32 found = *place; if (found == old) *place = new; return found; }
FUNCTION u64 exchange_u64(u64 *place, u64 old, u64 new) {
    u64 found = *place; if (found == old) *place = new; return found; }
#define ATOMIC_CAS_U32(place, old, new) exchange_u32((u32 *)(place), old, new)
#define ATOMIC_CAS_U64(place, old, new) exchange_u64((u64 *)(place), old, new)
/* That of musl gives numbers for some arguments below 1. */
FUNCTION f64 f64_acosh(f64 x) { return x < 1 ? NAN : acosh(x); }
#define CALL(name, x) _Generic((x), double: name, default: name##f)
#define FMA(x, y, z) CALL(fma, x)(x, y, z)
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
#define tanh(x) CALL(tanh, x)(x)
#define asinh(x) CALL(asinh, x)(x)
#define acosh(x) _Generic((x), double: f64_acosh, default: acoshf)(x)
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

typedef void weft_work(char *const *b, i64 item, i64 items);
struct weft_runtime { void (*run)(weft_work *work, char *const *b, i64 items); int (*poll)(void); };
FUNCTION void run_serially(weft_work *work, char *const *b, i64 items) {
    for (i64 item = 0; item < items; item++) work(b, item, items); }
FUNCTION int poll_nothing(void) { return 0; }
