// Work items are fibers: each has a stack, and gives way where it waits for others.
#pragma once
#include <algorithm>

#include "memory.h"

enum State { READY, AT_BARRIER, AT_SHUFFLE, DONE, FAILED };

struct Fiber {
    void *top;    // of its stack, where it gave way
    char *stack;
    State state;
    void *site;   // what it waits at
    u32 mask;     // of a shuffle: the lanes that take part
    u64 bits;
    int lane;
};

static const size_t STACK = 64 << 10, GUARD = 4096;
static const u32 WARP = 32;
static std::vector<Fiber> fibers;
static Fiber *current = nullptr;
static void *scheduler;
static void (*entry)(void **);
static void **entry_places;

// Saves what a call must keep and the stack's top, and goes on with another stack.
extern "C" void emulator_switch(void **save, void *top);
asm(R"(
.text
.type emulator_switch,@function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulator_switch,.-emulator_switch
)");

static void give_way(State state, void *site) {
    current->state = state;
    current->site = site;
    emulator_switch(&current->top, scheduler);
}

void end_launch() {
    give_way(FAILED, nullptr);
    abort();
}

static void run_fiber() {
    entry(entry_places);
    give_way(DONE, nullptr);
    abort();
}

static void prepare(Fiber &fiber) {
    if (!fiber.stack) {
        fiber.stack = (char *)mmap(nullptr, STACK + GUARD, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        mprotect(fiber.stack, GUARD, PROT_NONE);
    }
    void **top = (void **)(fiber.stack + GUARD + STACK);
    *--top = nullptr;  // as a call leaves it: 8 bytes off a multiple of 16
    *--top = (void *)run_fiber;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    fiber.top = top;
    fiber.state = READY;
}

// The order in which fibers take their turns: 0 as they are numbered, 1 from the last, else a seed.

static int schedule = 0;
static u64 random_state = 1;
static std::vector<u32> order;

static void set_schedule(int chosen) {
    schedule = chosen;
    random_state = 0x9e3779b97f4a7c15ull + chosen;
}

static u32 random_below(u32 n) {  // xorshift
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return (u32)((random_state >> 16) % n);
}

static void arrange(u32 count) {
    order.resize(count);
    for (u32 i = 0; i < count; i++) order[i] = schedule == 1 ? count - 1 - i : i;
    if (schedule > 1)
        for (u32 i = count; i > 1; i--) std::swap(order[i - 1], order[random_below(i)]);
}

// Whether all lanes of a mask wait at the same shuffle as one of them.
static bool is_complete(const Fiber &one, u32 first, u32 count) {
    for (u32 lane = 0; lane < WARP; lane++) {
        if (!(one.mask >> lane & 1)) continue;
        if (first + lane >= count) return false;
        const Fiber &other = fibers[first + lane];
        if (other.state != AT_SHUFFLE || other.mask != one.mask || other.site != one.site) return false;
    }
    return true;
}

static void pass_values(u32 mask, u32 first) {
    u64 bits[WARP];
    for (u32 lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1) bits[lane] = fibers[first + lane].bits;
    for (u32 lane = 0; lane < WARP; lane++) {
        if (!(mask >> lane & 1)) continue;
        Fiber &fiber = fibers[first + lane];
        u32 from = lane ^ (u32)fiber.lane;
        if (from < WARP && mask >> from & 1)
            fiber.bits = bits[from];
        else
            report("shuffle", printed("lane %u gets from lane %u, which takes no part", lane, from), fiber.site);
        fiber.state = READY;
    }
}

// Lets those go on of whom all of a warp have come to a shuffle; returns whether any do.
static bool release_shuffles(u32 count) {
    bool any = false;
    for (u32 i = 0; i < count; i++) {
        u32 first = i / WARP * WARP;
        if (fibers[i].state != AT_SHUFFLE || !is_complete(fibers[i], first, count)) continue;
        pass_values(fibers[i].mask, first);
        any = true;
    }
    return any;
}

// Lets all go on who wait at one barrier; otherwise says who cannot, unless all are done.
static bool release_barrier(u32 count, bool &is_done) {
    u32 done = 0;
    Fiber *waiting = nullptr, *other = nullptr, *shuffling = nullptr;
    for (u32 i = 0; i < count; i++) {
        Fiber &fiber = fibers[i];
        if (fiber.state == DONE) done++;
        else if (fiber.state == AT_SHUFFLE) shuffling = &fiber;
        else if (waiting && waiting->site != fiber.site) other = &fiber;
        else waiting = &fiber;
    }
    is_done = done == count;
    if (is_done || (!done && !shuffling && !other)) return !is_done;
    Fiber *stuck = shuffling ? shuffling : other ? other : waiting;
    emulator_item.x = (u32)(stuck - fibers.data());
    if (shuffling)
        report("divergent shuffle", printed("not all lanes come to it; %u of %u work items have ended", done, count), stuck->site);
    else
        report("divergent barrier", other ? "work items wait at different barriers"
                                          : printed("%u of %u work items end before it", done, count), stuck->site);
    return false;
}

// Runs the work items of a group; returns whether all came to their end.
static bool run_group(u32 count) {
    if (fibers.size() < count) fibers.resize(count);
    for (u32 i = 0; i < count; i++) prepare(fibers[i]);
    for (;;) {
        arrange(count);
        for (u32 i : order) {
            Fiber &fiber = fibers[i];
            if (fiber.state != READY) continue;
            current = &fiber;
            emulator_item.x = i;
            stack_low = fiber.stack, stack_high = fiber.stack + GUARD + STACK;
            emulator_switch(&scheduler, fiber.top);
            if (fiber.state == FAILED) return false;
        }
        if (release_shuffles(count)) continue;
        bool is_done;
        if (!release_barrier(count, is_done)) return is_done;
        now++;
        for (u32 i = 0; i < count; i++) fibers[i].state = READY;
    }
}
