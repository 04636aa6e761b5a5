// Runs kernels that g++ compiled behind a dialect's header; what they call comes here. Work groups
// run one after the other, on one thread of the host.
#include <dlfcn.h>
#include <signal.h>
#include <sys/time.h>

#include "fibers.h"

extern "C" {

// What kernels call by the words of their dialect

void emulator_barrier(u64 line) { give_way(AT_BARRIER, (void *)line); }

u64 emulator_shuffle(u64 line, u32 mask, u64 bits, int lane) {
    current->mask = mask, current->bits = bits, current->lane = lane;
    give_way(AT_SHUFFLE, (void *)line);
    return current->bits;
}

void emulator_update(const void *place, int size, void *site) {
    if ((uintptr_t)place % size) {
        report("unaligned", printed("an atomic of %d bytes", size), site);
        end_launch();
    }
    look_at(place, size, UPDATE, site);
}

// What -fsanitize=thread has them call at each access

#define SITE __builtin_return_address(0)
#define ACCESSES(n) \
    void __tsan_read##n(void *p) { look_at(p, n, READ, SITE); } \
    void __tsan_write##n(void *p) { look_at(p, n, WRITE, SITE); } \
    void __tsan_unaligned_read##n(void *p) { look_at(p, n, READ, SITE); } \
    void __tsan_unaligned_write##n(void *p) { look_at(p, n, WRITE, SITE); } \
    void __tsan_volatile_read##n(void *p) { look_at(p, n, RELAXED, SITE); } \
    void __tsan_volatile_write##n(void *p) { look_at(p, n, WRITE, SITE); }
ACCESSES(1) ACCESSES(2) ACCESSES(4) ACCESSES(8) ACCESSES(16)
void __tsan_read_range(void *p, long n) { look_at(p, n, READ, SITE); }
void __tsan_write_range(void *p, long n) { look_at(p, n, WRITE, SITE); }
void __tsan_init() {}

// What -fsanitize=undefined has them call, with where that is

struct Where { const char *file; u32 line, column; };
struct Mismatch { Where where; void *type; unsigned char alignment_bits, kind; };

void __ubsan_handle_type_mismatch_v1(Mismatch *data, void *place) {
    void *site = (void *)(u64)data->where.line;
    report("unaligned", printed("%p, for %d bytes", place, 1 << data->alignment_bits), site);
    end_launch();
}

#define UNDEFINED(name, words) \
    void __ubsan_handle_##name(Where *where) { report("undefined", words, (void *)(u64)where->line); }
UNDEFINED(add_overflow, "a signed sum overflows")
UNDEFINED(sub_overflow, "a signed difference overflows")
UNDEFINED(mul_overflow, "a signed product overflows")
UNDEFINED(negate_overflow, "a negation overflows")
UNDEFINED(divrem_overflow, "a division by 0, or one that overflows")
UNDEFINED(shift_out_of_bounds, "a shift by too much")

void __ubsan_handle_out_of_bounds(Where *where) {
    report("outside", "an index outside of an array", (void *)(u64)where->line);
    end_launch();
}

// What the host calls

void emulator_hold(char *begin, u64 size) { hold(begin, size); }
void emulator_drop(char *begin) { drop(begin); }
void emulator_set_schedule(int chosen) { set_schedule(chosen); }
const char *emulator_findings() { return findings.c_str(); }

// Takes note that the host, or a library, has written.
void emulator_given(char *place, u64 size) {
    Held *held = held_at(place);
    for (u64 i = 0; held && i < size && place + i < held->end; i++) {
        Cell &cell = held->cells[place + i - held->begin];
        cell.written = BY_HOST, cell.writer = 0;
    }
}

// Takes note that a library will write, so that nothing may be read before it has.
void emulator_forget(char *place, u64 size) {
    Held *held = held_at(place);
    for (u64 i = 0; held && i < size && place + i < held->end; i++)
        held->cells[place + i - held->begin].written = 0;
}

// Returns how many bytes, of some that the host reads, nobody has written.
u64 emulator_unset(char *place, u64 size) {
    Held *held = held_at(place);
    u64 count = 0;
    for (u64 i = 0; held && i < size && place + i < held->end; i++)
        count += !held->cells[place + i - held->begin].written;
    return count;
}

// Returns how far from the beginning of its library an address of code lies; a line stays one.
u64 emulator_offset(void *site) {
    Dl_info info;
    return dladdr(site, &info) ? (u64)((char *)site - (char *)info.dli_fbase) : 0;
}

// A launch ends when it has taken so many seconds of the processor; 0 for never.

static int limit = 0;

static void time_is_up(int) {
    char *here = (char *)__builtin_frame_address(0);
    if (!current || here < stack_low || here >= stack_high) return;
    report("endless", "it takes too long", nullptr);
    end_launch();
}

static void set_timer(int seconds) {
    struct itimerval timer = {{0, 0}, {seconds, 0}};
    setitimer(ITIMER_VIRTUAL, &timer, nullptr);
}

void emulator_set_limit(int seconds) {
    struct sigaction action = {};
    action.sa_handler = time_is_up;
    action.sa_flags = SA_NODEFER;  // the handler does not return
    sigaction(SIGVTALRM, &action, nullptr);
    limit = seconds;
}

struct Argument { char *begin; u64 size, is_written; };

static bool take_arguments(const Argument *arguments, int count) {
    spans.clear();
    for (int i = 0; i < count; i++) {
        const Argument &each = arguments[i];
        Held *held = held_at(each.begin);
        if (!held || each.begin + each.size > held->end) {
            report("argument", printed("argument %d: %lu bytes are no memory of the device", i, each.size), nullptr);
            return false;
        }
        spans.push_back({each.begin, each.begin + each.size, (bool)each.is_written,
                         held->cells + (each.begin - held->begin)});
    }
    last_span = 0;
    return true;
}

// Runs a kernel; returns how much was found.
int emulator_launch(void (*function)(void **), void **places, u32 groups, u32 items, char *shared,
                    char *shared_stop, const Argument *arguments, int count) {
    findings.clear(), known.clear();
    found_count = 0;
    emulator_groups = {groups, 1, 1}, emulator_items = {items, 1, 1};
    emulator_item = emulator_group = {0, 0, 0};
    if (!take_arguments(arguments, count)) return found_count;
    shared_begin = shared, shared_end = shared_stop;
    shared_cells.assign(shared_stop - shared, Cell{});
    entry = function, entry_places = places;
    if (now > 0xf0000000u) begin_again();
    launch_began = ++now;
    if (limit) set_timer(limit);
    for (u32 n = 0; n < groups; n++) {
        emulator_group.x = schedule == 1 ? groups - 1 - n : n;
        group_began = ++now;
        memset(shared_begin, 0xA5, shared_end - shared_begin);
        if (!run_group(items)) break;
    }
    if (limit) set_timer(0);
    ++now;
    return found_count;
}
}
