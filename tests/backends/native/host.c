/* Runs a program in a shared library on the arrays of a file, on any system.
   Usage: host PROGRAM ARRAYS RESULTS CALLS [RUNTIME]
   ARRAYS holds for each address that the program takes an int64, the number of bytes, negative for a
   result, and the bytes if it is none. RESULTS gets the bytes of the results. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#if defined(_WIN32)
#include <windows.h>
typedef HMODULE library;
static library open_library(const char *path) { return LoadLibraryA(path); }
static void *symbol(library from, const char *name) {
    return (void *)(uintptr_t)GetProcAddress(from, name);
}
#else
#include <dlfcn.h>
typedef void *library;
static library open_library(const char *path) { return dlopen(path, RTLD_NOW); }
static void *symbol(library from, const char *name) { return dlsym(from, name); }
#endif

#define MOST 64
#define THREADS 4

static void *function(library from, const char *name) {
    void *found = symbol(from, name);
    if (!found) fprintf(stderr, "no function %s\n", name), exit(2);
    return found;
}

static library opened(const char *path) {
    library found = open_library(path);
    if (!found) fprintf(stderr, "%s cannot be loaded\n", path), exit(2);
    return found;
}

static void *buffer(int64_t bytes) {
    char *all = calloc(1, bytes + 64);
    if (!all) exit(3);
    return all + (64 - (uintptr_t)all % 64);
}

int main(int count, char **arguments) {
    if (count < 5) return 4;
    char *table[MOST];
    int64_t sizes[MOST];
    int slots = 0;
    FILE *arrays = fopen(arguments[2], "rb");
    if (!arrays) return 5;
    for (; slots < MOST && fread(&sizes[slots], sizeof *sizes, 1, arrays) == 1; slots++) {
        int64_t bytes = sizes[slots];
        table[slots] = buffer(bytes < 0 ? -bytes : bytes);
        if (bytes > 0 && fread(table[slots], 1, bytes, arrays) != (size_t)bytes) return 6;
    }
    fclose(arrays);

    library program = opened(arguments[1]);
    if (count > 5) {
        library runtime = opened(arguments[5]);
        void *functions[] = {
            function(runtime, "weft_run"), function(runtime, "weft_gemm"),
            function(runtime, "weft_poll"), function(runtime, "weft_clock"),
        };
        ((void (*)(int))(uintptr_t)function(runtime, "weft_threads"))(THREADS);
        ((void (*)(void **))(uintptr_t)function(program, "weft_init"))(functions);
    }
    int (*run)(char *const *) = (int (*)(char *const *))(uintptr_t)function(program, "weft_program");
    for (int call = 0; call < atoi(arguments[4]); call++) {
        int status = run(table);
        if (status) return 10 + status;
    }

    FILE *results = fopen(arguments[3], "wb");
    if (!results) return 7;
    for (int slot = 0; slot < slots; slot++)
        if (sizes[slot] < 0)
            if (fwrite(table[slot], 1, -sizes[slot], results) != (size_t)-sizes[slot]) return 8;
    return fclose(results) ? 9 : 0;
}
