/* What the runtime asks of the operating system: locks, threads, a clock, words that threads sleep
   on, and the processors that threads run on. Linux, Windows, and others with POSIX threads. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <pthread.h>
#include <time.h>
#endif
#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__x86_64__) || defined(__i386__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("yield")
#else
#define RELAX()
#endif

/* Locks, threads and a clock, which is that of Python's `time.perf_counter`. */

#if defined(_WIN32)

#define EXPORT __declspec(dllexport)

typedef SRWLOCK lock;
#define LOCK_INIT SRWLOCK_INIT
static void acquire(lock *l) { AcquireSRWLockExclusive(l); }
static int try_acquire(lock *l) { return TryAcquireSRWLockExclusive(l); }
static void release(lock *l) { ReleaseSRWLockExclusive(l); }

typedef CONDITION_VARIABLE condition;
#define CONDITION_INIT CONDITION_VARIABLE_INIT
static void wait_for(condition *c, lock *l) { SleepConditionVariableSRW(c, l, INFINITE, 0); }
static void notify_all(condition *c) { WakeAllConditionVariable(c); }

#define THREAD(name) static DWORD WINAPI name(void *argument)
static void start_thread(LPTHREAD_START_ROUTINE body, uintptr_t argument) {
    HANDLE thread = CreateThread(0, 0, body, (void *)argument, 0, 0);
    if (thread) CloseHandle(thread);
}
static void at_fork(void (*in_child)(void)) { (void)in_child; }

static int64_t nanoseconds(void) {
    LARGE_INTEGER now, rate;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&rate);
    return now.QuadPart / rate.QuadPart * 1000000000
           + now.QuadPart % rate.QuadPart * 1000000000 / rate.QuadPart;
}

#else

#define EXPORT __attribute__((visibility("default")))

typedef pthread_mutex_t lock;
#define LOCK_INIT PTHREAD_MUTEX_INITIALIZER
static void acquire(lock *l) { pthread_mutex_lock(l); }
static int try_acquire(lock *l) { return !pthread_mutex_trylock(l); }
static void release(lock *l) { pthread_mutex_unlock(l); }

#if !defined(__linux__)
typedef pthread_cond_t condition;
#define CONDITION_INIT PTHREAD_COND_INITIALIZER
static void wait_for(condition *c, lock *l) { pthread_cond_wait(c, l); }
static void notify_all(condition *c) { pthread_cond_broadcast(c); }
#endif

#define THREAD(name) static void *name(void *argument)
static void start_thread(void *(*body)(void *), uintptr_t argument) {
    pthread_t thread;
    if (!pthread_create(&thread, 0, body, (void *)argument)) pthread_detach(thread);
}
static void at_fork(void (*in_child)(void)) { pthread_atfork(0, 0, in_child); }

#if defined(__APPLE__)
#define CLOCK CLOCK_UPTIME_RAW
#else
#define CLOCK CLOCK_MONOTONIC
#endif
static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif

/* Words that threads sleep on until they change. */

typedef struct { _Atomic uint32_t value, sleepers; } word;
#if defined(__linux__)
/* The numbers of <linux/futex.h>, which is a package of its own on Alpine. */
enum { futex_wait = 128, futex_wake = 129 };
static void word_wait(word *w, uint32_t seen) {
    atomic_fetch_add(&w->sleepers, 1);
    syscall(SYS_futex, &w->value, futex_wait, seen, 0, 0, 0);
    atomic_fetch_sub(&w->sleepers, 1);
}
static void word_wake(word *w) {
    if (atomic_load(&w->sleepers))
        syscall(SYS_futex, &w->value, futex_wake, INT_MAX, 0, 0, 0);
}
#else
static lock sleeping = LOCK_INIT;
static condition woken = CONDITION_INIT;
static void word_wait(word *w, uint32_t seen) {
    atomic_fetch_add(&w->sleepers, 1);
    acquire(&sleeping);
    while (atomic_load(&w->value) == seen) wait_for(&woken, &sleeping);
    release(&sleeping);
    atomic_fetch_sub(&w->sleepers, 1);
}
static void word_wake(word *w) {
    if (!atomic_load(&w->sleepers)) return;
    acquire(&sleeping);
    notify_all(&woken);
    release(&sleeping);
}
#endif

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

static void forget_workers(void) {
    atomic_store(&started, 0);
    for (int i = 0; i < MAX_WORKERS; i++) atomic_store(&workers[i], 0);
    avoided = -1;
}

static void keep_off(int cpu, int expected) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return;
    if (cpu >= 0 && cpu < CPU_SETSIZE && CPU_COUNT(&allowed) > 1) CPU_CLR(cpu, &allowed);
    int count = atomic_load(&started), is_complete = count == expected;
    for (int i = 0; i < count && i < MAX_WORKERS; i++) {
        pid_t thread = atomic_load(&workers[i]);
        if (!thread || sched_setaffinity(thread, sizeof allowed, &allowed)) is_complete = 0;
    }
    avoided = is_complete ? cpu : -1;
}

/* `expected` is the number of workers. */
static void keep_off_caller(int expected) {
    int cpu = sched_getcpu();
    if (cpu != avoided) keep_off(cpu, expected);
}
#else
static void register_worker(void) {}
static void forget_workers(void) {}
static void keep_off_caller(int expected) { (void)expected; }
#endif
