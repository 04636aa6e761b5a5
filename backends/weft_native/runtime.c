/* The runtime of native programs: a pool of threads, and matrix products by the BLAS of NumPy.
   One copy per process serves all programs. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#define EXPORT __attribute__((visibility("default")))

typedef int64_t i64;
typedef void weft_work(char *const *b, i64 item, i64 items);

/* Spinning and sleeping */

#if defined(__x86_64__) || defined(__i386__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("yield")
#else
#define RELAX()
#endif
/* Turns before a thread sleeps: some 50 us, several times what a wake-up takes. */
#define SPIN 4000

typedef struct { _Atomic uint32_t value, sleepers; } word;
#if defined(__linux__)
static void word_wait(word *w, uint32_t seen) {
    atomic_fetch_add(&w->sleepers, 1);
    syscall(SYS_futex, &w->value, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, seen, 0, 0, 0);
    atomic_fetch_sub(&w->sleepers, 1);
}
static void word_wake(word *w) {
    if (atomic_load(&w->sleepers))
        syscall(SYS_futex, &w->value, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, 0, 0, 0);
}
#else
static pthread_mutex_t sleeping = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;
static void word_wait(word *w, uint32_t seen) {
    atomic_fetch_add(&w->sleepers, 1);
    pthread_mutex_lock(&sleeping);
    while (atomic_load(&w->value) == seen) pthread_cond_wait(&woken, &sleeping);
    pthread_mutex_unlock(&sleeping);
    atomic_fetch_sub(&w->sleepers, 1);
}
static void word_wake(word *w) {
    if (!atomic_load(&w->sleepers)) return;
    pthread_mutex_lock(&sleeping);
    pthread_cond_broadcast(&woken);
    pthread_mutex_unlock(&sleeping);
}
#endif

/* Jobs. Items are taken by a compare-and-swap of the ticket: 28 bits of the job's number, 18 of its
   items, 18 of the next item. An exchange with the number of an earlier job fails, so the fields of
   a job are those of the ticket that was read before them. */

#define BITS 18
#define MAX_ITEMS ((1 << BITS) - 1)
static _Atomic uint64_t ticket;
static _Atomic(weft_work *) job_work;
static _Atomic(char *const *) job_buffers;
static _Atomic i64 job_first, job_items;
static word job __attribute__((aligned(64)));
static word done __attribute__((aligned(64)));
static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static int threads = 1, is_started;

/* The number of threads is global to BLAS: the first of several calls sets it, the last resets it. */
static pthread_mutex_t limiting = PTHREAD_MUTEX_INITIALIZER;
static int limits, threads_before;

static void take_items(uint32_t number) {
    for (;;) {
        uint64_t seen = atomic_load(&ticket);
        uint32_t next = seen & MAX_ITEMS, items = seen >> BITS & MAX_ITEMS;
        if (seen >> (2 * BITS) != (number & 0xfffffff) || next >= items) return;
        weft_work *work = atomic_load_explicit(&job_work, memory_order_relaxed);
        char *const *b = atomic_load_explicit(&job_buffers, memory_order_relaxed);
        i64 first = atomic_load_explicit(&job_first, memory_order_relaxed);
        i64 all = atomic_load_explicit(&job_items, memory_order_relaxed);
        if (!atomic_compare_exchange_weak(&ticket, &seen, seen + 1)) continue;
        work(b, first + next, all);
        if (atomic_fetch_add(&done.value, 1) + 1 == items) word_wake(&done);
    }
}

/* Some kernels wake a thread on the processor of the thread that wakes it, where it waits for that
   one or takes its time. So workers keep off the caller's processor. */
#if defined(__linux__)
#define MAX_WORKERS 256
static _Atomic pid_t workers[MAX_WORKERS];
static _Atomic int started;
static int avoided = -1;

static void register_worker(void) {
    int number = atomic_fetch_add(&started, 1);
    if (number < MAX_WORKERS) atomic_store(&workers[number], syscall(SYS_gettid));
}

static void keep_off(int cpu) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return;
    if (cpu >= 0 && cpu < CPU_SETSIZE && CPU_COUNT(&allowed) > 1) CPU_CLR(cpu, &allowed);
    int count = atomic_load(&started), is_complete = count == threads - 1;
    for (int i = 0; i < count && i < MAX_WORKERS; i++) {
        pid_t thread = atomic_load(&workers[i]);
        if (!thread || sched_setaffinity(thread, sizeof allowed, &allowed)) is_complete = 0;
    }
    avoided = is_complete ? cpu : -1;
}

static void keep_off_caller(void) {
    int cpu = sched_getcpu();
    if (cpu != avoided) keep_off(cpu);
}
#else
static void register_worker(void) {}
static void keep_off_caller(void) {}
#endif

static void *worker(void *start) {
    uint32_t seen = (uint32_t)(uintptr_t)start;
    register_worker();
    for (;;) {
        uint32_t now;
        for (int i = 0; (now = atomic_load(&job.value)) == seen; i++)
            if (i < SPIN) RELAX(); else word_wait(&job, seen);
        seen = now;
        take_items(now);
    }
    return 0;
}

static void after_fork(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    busy = limiting = fresh;
    is_started = limits = 0;
    atomic_store(&job.sleepers, 0);
    atomic_store(&done.sleepers, 0);
#if defined(__linux__)
    atomic_store(&started, 0);
    for (int i = 0; i < MAX_WORKERS; i++) atomic_store(&workers[i], 0);
    avoided = -1;
#endif
}

static void start_threads(void) {
    static int is_registered;
    if (!is_registered) pthread_atfork(0, 0, after_fork);
    is_registered = is_started = 1;
    uintptr_t seen = atomic_load(&job.value);
    for (int i = 1; i < threads; i++) {
        pthread_t thread;
        if (!pthread_create(&thread, 0, worker, (void *)seen)) pthread_detach(thread);
    }
}

static void run_part(weft_work *work, char *const *b, i64 first, i64 count, i64 items) {
    uint32_t number = atomic_load(&job.value) + 1;
    atomic_store(&job_work, work);
    atomic_store(&job_buffers, b);
    atomic_store(&job_first, first);
    atomic_store(&job_items, items);
    atomic_store(&done.value, 0);
    atomic_store(&ticket, (uint64_t)(number & 0xfffffff) << 2 * BITS | (uint64_t)count << BITS);
    atomic_store(&job.value, number);
    keep_off_caller();
    word_wake(&job);
    take_items(number);
    uint32_t now;
    for (int i = 0; (now = atomic_load(&done.value)) != count; i++)
        if (i < SPIN) RELAX(); else word_wait(&done, now);
}

/* Runs all items of a job, by the calling thread alone while another call uses the pool. */
EXPORT void weft_run(weft_work *work, char *const *b, i64 items) {
    if (items == 1 || threads == 1 || pthread_mutex_trylock(&busy)) {
        for (i64 item = 0; item < items; item++) work(b, item, items);
        return;
    }
    if (!is_started) start_threads();
    for (i64 first = 0; first < items; first += MAX_ITEMS)
        run_part(work, b, first, items - first < MAX_ITEMS ? items - first : MAX_ITEMS, items);
    pthread_mutex_unlock(&busy);
}

EXPORT void weft_threads(int count) { threads = count; }

/* Matrix products, column-major. The pool divides them; BLAS computes each part in one thread. */

typedef void sgemm(int, int, int, i64, i64, i64, float, const float *, i64, const float *, i64,
                   float, float *, i64);
typedef void dgemm(int, int, int, i64, i64, i64, double, const double *, i64, const double *, i64,
                   double, double *, i64);
static sgemm *blas_sgemm;
static dgemm *blas_dgemm;
static void (*set_blas_threads)(int);
static int (*get_blas_threads)(void);

EXPORT void weft_blas(void *s, void *d, void *set, void *get) {
    blas_sgemm = s, blas_dgemm = d, set_blas_threads = set, get_blas_threads = get;
}

/* What weft_native.program_text.gemm_shape writes; keep both in step. */
enum { SIZE, M, N, K, BATCH, LEFT_T, LEFT_LD, LEFT_STEP, RIGHT_T, RIGHT_LD, RIGHT_STEP, OUT_LD,
       OUT_STEP };
struct product { const i64 *shape; const char *x, *y; char *out; i64 rows, columns; };

static i64 at_most(i64 a, i64 b) { return a < b ? a : b; }
static i64 cut(i64 part, i64 parts, i64 length, i64 unit) {
    return part == parts ? length : at_most(part * length / parts / unit * unit, length);
}

static void gemm_part(char *const *b, i64 item, i64 items) {
    const struct product *p = (const struct product *)b;
    const i64 *s = p->shape, each = p->rows * p->columns, groups = items / each;
    i64 row = item % each / p->columns, column = item % p->columns;
    i64 n0 = cut(row, p->rows, s[N], 4), n1 = cut(row + 1, p->rows, s[N], 4);
    i64 m0 = cut(column, p->columns, s[M], 16), m1 = cut(column + 1, p->columns, s[M], 16);
    if (m1 <= m0 || n1 <= n0) return;
    int left_t = s[LEFT_T] ? 112 : 111, right_t = s[RIGHT_T] ? 112 : 111;
    for (i64 i = item / each * s[BATCH] / groups; i < (item / each + 1) * s[BATCH] / groups; i++) {
        const void *left = p->y + (i * s[LEFT_STEP] + m0 * (s[LEFT_T] ? s[LEFT_LD] : 1)) * s[SIZE];
        const void *right =
            p->x + (i * s[RIGHT_STEP] + n0 * (s[RIGHT_T] ? 1 : s[RIGHT_LD])) * s[SIZE];
        void *out = p->out + (i * s[OUT_STEP] + n0 * s[OUT_LD] + m0) * s[SIZE];
        if (s[SIZE] == 8)
            blas_dgemm(102, left_t, right_t, m1 - m0, n1 - n0, s[K], 1, left, s[LEFT_LD], right,
                       s[RIGHT_LD], 0, out, s[OUT_LD]);
        else
            blas_sgemm(102, left_t, right_t, m1 - m0, n1 - n0, s[K], 1, left, s[LEFT_LD], right,
                       s[RIGHT_LD], 0, out, s[OUT_LD]);
    }
}

static void limit_blas(int change) {
    pthread_mutex_lock(&limiting);
    if (change > 0 && limits == 0 && (threads_before = get_blas_threads()) != 1) set_blas_threads(1);
    limits += change;
    if (limits == 0 && threads_before != 1) set_blas_threads(threads_before);
    pthread_mutex_unlock(&limiting);
}

/* The multiplications of a product that one thread computes as fast as several. */
#define MIN_PARALLEL_WORK 131072.0

EXPORT void weft_gemm(const i64 *s, const void *x, const void *y, void *out) {
    struct product p = {s, x, y, out, 1, 1};
    i64 items = 1;
    if ((double)s[M] * s[N] * s[K] * s[BATCH] > MIN_PARALLEL_WORK && threads > 1) {
        i64 parts = s[BATCH] >= 4 * threads ? 1 : (threads + s[BATCH] - 1) / s[BATCH];
        if (s[N] >= s[M]) p.rows = parts; else p.columns = parts;
        items = s[BATCH] >= 4 * threads ? 4 * threads : parts * s[BATCH];
    }
    limit_blas(1);
    weft_run(gemm_part, (char *const *)&p, items);
    limit_blas(-1);
}

/* Long loops ask the host for interrupts, ten times a second. */

static int (*host_poll)(void);
static _Atomic i64 next_poll;

EXPORT void weft_host(int (*poll)(void)) { host_poll = poll; }

EXPORT int weft_poll(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    i64 ms = (i64)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (ms < atomic_load(&next_poll)) return 0;
    atomic_store(&next_poll, ms + 100);
    return host_poll ? host_poll() : 0;
}
