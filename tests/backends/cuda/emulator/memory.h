// Every byte of the device's memory has a cell that knows who wrote and read it last. So an access
// shows whether it is within what the launch was given, whether the memory was ever written, and
// whether another work item may come before it or after it, in whatever order they run.
#pragma once
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

typedef uint32_t u32;
typedef uint64_t u64;

struct Place { u32 x, y, z; };
extern "C" {
Place emulator_item, emulator_group, emulator_items, emulator_groups;
}

// What was found: lines of kind, site, work group, work item and words.

static std::string findings;
static int found_count = 0;
static std::set<std::pair<std::string, void *>> known;

static std::string printed(const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return text;
}

// Each kind is reported once for each place in a kernel.
static void report(const char *kind, const std::string &words, void *site) {
    found_count++;
    if (!known.insert({kind, site}).second) return;
    findings += printed("%s|%p|%u|%u|", kind, site, emulator_group.x, emulator_item.x) + words + "\n";
}

// Times: each barrier, each group and each launch begins an interval of its own.

static const u32 BY_HOST = 1;
static u32 now = 16, group_began = 16, launch_began = 16;

struct Cell {
    u32 written, writer;  // the time of the last write, and the work item + 1, with ATOMIC
    u32 read, reader;     // that of the last read; SEVERAL if others have read in the same interval
    u32 others;           // the launch in which another group has read it
};
static const u32 ATOMIC = 0x80000000u, SEVERAL = 0x7fffffffu;
enum Access { READ, WRITE, UPDATE, RELAXED };  // a relaxed read may meet updates

struct Held { char *begin, *end; Cell *cells; };
static std::map<char *, Held> memories;

static Held *held_at(const void *place) {
    auto next = memories.upper_bound((char *)place);
    if (next == memories.begin()) return nullptr;
    Held &held = std::prev(next)->second;
    return (char *)place < held.end ? &held : nullptr;
}

// What a launch may touch.

struct Span { char *begin, *end; bool is_written; Cell *cells; };
static std::vector<Span> spans;
static size_t last_span = 0;
static char *shared_begin, *shared_end;
static std::vector<Cell> shared_cells;
static char *stack_low, *stack_high;  // of the work item that runs

[[noreturn]] void end_launch();

enum Space { SHARED, GLOBAL };
static const char *const SPACES[] = {"shared", "global"};
static const char *const NAMES[] = {"read", "written", "updated", "read"};

// Reports an access that another work item's write before may follow as well.
static void check_writer(const Cell &cell, Access access, u32 me, Space space, void *site) {
    if (cell.written < (space == SHARED ? group_began : launch_began)) return;
    bool is_other_group = cell.written < group_began;
    u32 writer = cell.writer & ~ATOMIC;
    if (!is_other_group && (cell.written != now || writer == me)) return;
    if ((cell.writer & ATOMIC) && (access == UPDATE || access == RELAXED)) return;
    const char *how = (cell.writer & ATOMIC) ? "updated" : "written";
    const char *who = is_other_group ? "work item of another group," : "work item";
    report(is_other_group ? "race of groups" : "race",
           printed("%s memory is %s that %s %u has %s", SPACES[space], NAMES[access], who, writer - 1, how), site);
}

// Reports a write that another work item's read before may follow as well.
static void check_readers(const Cell &cell, Access access, u32 me, Space space, void *site) {
    bool in_group = cell.read >= group_began && cell.read == now && cell.reader != me;
    bool of_groups = space == GLOBAL && (cell.others == launch_began ||
                                    (cell.read >= launch_began && cell.read < group_began));
    if (in_group || of_groups)
        report(of_groups ? "race of groups" : "race",
               printed("%s memory is %s that another work item has read", SPACES[space], NAMES[access]), site);
}

static inline void touch(Cell &cell, Access access, u32 me, Space space, void *site) {
    check_writer(cell, access, me, space, site);
    if (access == WRITE || access == UPDATE) {
        check_readers(cell, access, me, space, site);
        cell.written = now;
        cell.writer = me | (access == UPDATE ? ATOMIC : 0);
    } else if (access == READ) {
        if (cell.read >= launch_began && cell.read < group_began) cell.others = launch_began;
        cell.reader = cell.read == now && cell.reader != me ? SEVERAL : me;
        cell.read = now;
    }
}

static void touch_all(Cell *cells, long size, Access access, Space space, u32 least, void *site) {
    u32 me = emulator_item.x + 1;
    for (long i = 0; i < size; i++) {
        if (access != WRITE && cells[i].written < least) {
            report(printed("unset %s memory", SPACES[space]).c_str(),
                   printed("%ld bytes are read, of which nobody has written one", size), site);
            cells[i].written = least;
            cells[i].writer = me;
            return;
        }
        touch(cells[i], access, me, space, site);
    }
}

// Ends the launch, as a GPU does, where nothing can be accessed.
static void report_outside(char *place, long size, Access access, void *site) {
    std::string words = printed("%ld bytes are %s ", size, NAMES[access]);
    words += held_at(place) ? "in memory of something else" : "where the device has no memory";
    for (Span &span : spans)
        if (place + size > span.begin && place < span.end)
            words += printed(", from byte %ld of an argument of %ld%s", (long)(place - span.begin),
                             (long)(span.end - span.begin), span.is_written ? "" : " that is const");
    report("outside", words, site);
    if (held_at(place) && held_at(place + size - 1)) return;
    words.~basic_string();
    end_launch();
}

static void look_at(const void *where, long size, Access access, void *site) {
    char *place = (char *)where;
    if (place >= stack_low && place < stack_high) return;
    if (place >= shared_begin && place < shared_end) {
        if (place + size > shared_end) return report("outside", "beyond shared memory", site);
        touch_all(&shared_cells[place - shared_begin], size, access, SHARED, group_began, site);
        return;
    }
    size_t count = spans.size();
    for (size_t n = 0, i = last_span; n < count; n++, i = i + 1 < count ? i + 1 : 0) {
        Span &span = spans[i];
        bool fits = place >= span.begin && place + size <= span.end;
        if (!fits || ((access == WRITE || access == UPDATE) && !span.is_written)) continue;
        last_span = i;
        touch_all(span.cells + (place - span.begin), size, access, GLOBAL, BY_HOST, site);
        return;
    }
    report_outside(place, size, access, site);
}

static void hold(char *begin, u64 size) {
    void *cells = mmap(nullptr, size * sizeof(Cell), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (cells == MAP_FAILED) abort();
    memories[begin] = Held{begin, begin + size, (Cell *)cells};
}

static void drop(char *begin) {
    auto found = memories.find(begin);
    if (found == memories.end()) return;
    Held &held = found->second;
    munmap(held.cells, (held.end - held.begin) * sizeof(Cell));
    memories.erase(found);
}

// Forgets all times but that something was written, before they are too many to count.
static void begin_again() {
    for (auto &each : memories)
        for (char *p = each.second.begin; p < each.second.end; p++) {
            Cell &cell = each.second.cells[p - each.second.begin];
            if (cell.written) cell = Cell{BY_HOST, 0, 0, 0, 0};
        }
    now = 16;
}
