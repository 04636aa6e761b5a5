/* The runtime of native programs: a pool of threads, and matrix products by the BLAS of NumPy.
   One copy per process serves all programs. It follows system.h. */

typedef int64_t i64;
typedef void weft_work(char *const *b, i64 item, i64 items);

/* Turns before a thread sleeps: some 50 us, several times what a wake-up takes. */
#define SPIN 4000

/* Jobs. Each thread has a share of the items of a job, and takes those of other shares after them. So
   a thread finds in its cache what it wrote in the job before. Items are taken by a compare-and-swap
   of the ticket of their share: 46 bits of the job's number, 18 of the next item. A ticket with the
   number of an earlier job is one of which nobody took an item yet. A job has ended when all its
   items are taken and done, so a thread that is late for it finds no ticket with a lower number. */

#define BITS 18
#define MAX_ITEMS ((1 << BITS) - 1)
#define MAX_SHARES 256
static struct { _Atomic uint64_t ticket; } shares[MAX_SHARES] __attribute__((aligned(64)));
static _Atomic uint64_t job_number; /* 0 while the fields of a job are written */
static _Atomic(weft_work *) job_work;
static _Atomic(char *const *) job_buffers;
static _Atomic i64 job_first, job_count, job_items, job_shares;
static word job __attribute__((aligned(64)));
static word done __attribute__((aligned(64)));
static lock busy = LOCK_INIT;
static int threads = 1, is_started;

/* The number of threads is global to BLAS: the first of several calls sets it, the last resets it. */
static lock limiting = LOCK_INIT;
static int limits, threads_before;

/* Takes an item of a share; returns -1 when there are no more, -2 when the job has ended. */
static i64 take_item(_Atomic uint64_t *ticket, uint64_t number, i64 begin, i64 end) {
    uint64_t seen = atomic_load(ticket);
    for (;;) {
        if (seen >> BITS > number) return -2;
        i64 next = seen >> BITS == number ? (i64)(seen & MAX_ITEMS) : begin;
        if (next >= end) return -1;
        if (atomic_compare_exchange_weak(ticket, &seen, number << BITS | (next + 1))) return next;
    }
}

static void take_items(i64 own) {
    uint64_t number = atomic_load(&job_number);
    weft_work *work = atomic_load(&job_work);
    char *const *b = atomic_load(&job_buffers);
    i64 first = atomic_load(&job_first), count = atomic_load(&job_count);
    i64 items = atomic_load(&job_items), all = atomic_load(&job_shares), ended = 0;
    if (!number || atomic_load(&job_number) != number) return;
    for (i64 i = 0; i < all; i++) {
        i64 share = (own + i) % all, begin = share * count / all, end = (share + 1) * count / all;
        i64 item;
        while ((item = take_item(&shares[share].ticket, number, begin, end)) >= 0) {
            work(b, first + item, items);
            ended++;
        }
        if (item == -2) return;
    }
    if (ended && atomic_fetch_add(&done.value, ended) + ended == count) word_wake(&done);
}

THREAD(worker) {
    uint32_t seen = atomic_load(&job.value) - 1;
    register_worker();
    for (;;) {
        uint32_t now;
        for (int i = 0; (now = atomic_load(&job.value)) == seen; i++)
            if (i < SPIN) RELAX(); else word_wait(&job, seen);
        seen = now;
        take_items((uintptr_t)argument);
    }
    return 0;
}

static void after_fork(void) {
    busy = limiting = (lock)LOCK_INIT;
    is_started = limits = 0;
    atomic_store(&job.sleepers, 0);
    atomic_store(&done.sleepers, 0);
    forget_workers();
}

static void start_threads(void) {
    static int is_registered;
    if (!is_registered) at_fork(after_fork);
    is_registered = is_started = 1;
    for (int i = 1; i < threads; i++) start_thread(worker, i);
}

static void run_part(weft_work *work, char *const *b, i64 first, i64 count, i64 items) {
    static uint64_t number;
    i64 all = threads < MAX_SHARES ? threads : MAX_SHARES;
    atomic_store(&job_number, 0);
    atomic_store(&job_work, work);
    atomic_store(&job_buffers, b);
    atomic_store(&job_first, first);
    atomic_store(&job_count, count);
    atomic_store(&job_items, items);
    atomic_store(&job_shares, all < count ? all : count);
    atomic_store(&done.value, 0);
    atomic_store(&job_number, ++number);
    atomic_fetch_add(&job.value, 1);
    keep_off_caller(threads - 1);
    word_wake(&job);
    take_items(0);
    uint32_t now;
    for (int i = 0; (now = atomic_load(&done.value)) != count; i++)
        if (i < SPIN) RELAX(); else word_wait(&done, now);
}

/* Runs all items of a job, by the calling thread alone while another call uses the pool. */
EXPORT void weft_run(weft_work *work, char *const *b, i64 items) {
    if (items == 1 || threads == 1 || !try_acquire(&busy)) {
        for (i64 item = 0; item < items; item++) work(b, item, items);
        return;
    }
    if (!is_started) start_threads();
    for (i64 first = 0; first < items; first += MAX_ITEMS)
        run_part(work, b, first, items - first < MAX_ITEMS ? items - first : MAX_ITEMS, items);
    release(&busy);
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

EXPORT void weft_blas(sgemm *s, dgemm *d, void (*set)(int), int (*get)(void)) {
    blas_sgemm = s, blas_dgemm = d, set_blas_threads = set, get_blas_threads = get;
}

/* What weft_native.program_text.gemm_shape writes; keep both in step. */
enum { ITEMSIZE, M, N, K, BATCH, LEFT_T, LEFT_LD, LEFT_STEP, RIGHT_T, RIGHT_LD, RIGHT_STEP, OUT_LD,
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
        const void *left = p->y + (i * s[LEFT_STEP] + m0 * (s[LEFT_T] ? s[LEFT_LD] : 1)) * s[ITEMSIZE];
        const void *right =
            p->x + (i * s[RIGHT_STEP] + n0 * (s[RIGHT_T] ? 1 : s[RIGHT_LD])) * s[ITEMSIZE];
        void *out = p->out + (i * s[OUT_STEP] + n0 * s[OUT_LD] + m0) * s[ITEMSIZE];
        if (s[ITEMSIZE] == 8)
            blas_dgemm(102, left_t, right_t, m1 - m0, n1 - n0, s[K], 1, left, s[LEFT_LD], right,
                       s[RIGHT_LD], 0, out, s[OUT_LD]);
        else
            blas_sgemm(102, left_t, right_t, m1 - m0, n1 - n0, s[K], 1, left, s[LEFT_LD], right,
                       s[RIGHT_LD], 0, out, s[OUT_LD]);
    }
}

static void limit_blas(int change) {
    acquire(&limiting);
    if (change > 0 && limits == 0 && (threads_before = get_blas_threads()) != 1) set_blas_threads(1);
    limits += change;
    if (limits == 0 && threads_before != 1) set_blas_threads(threads_before);
    release(&limiting);
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

EXPORT i64 weft_clock(void) { return nanoseconds(); }

EXPORT int weft_poll(void) {
    i64 now = nanoseconds();
    if (now < atomic_load(&next_poll)) return 0;
    atomic_store(&next_poll, now + 100000000);
    return host_poll ? host_poll() : 0;
}
