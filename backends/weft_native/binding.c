/* The binding: a builtin function of Python that runs a program with arrays of NumPy. It follows
   runtime.c. */

/* What it calls, in the order of FUNCTIONS in binding.py; keep both in step. All of it is of the
   stable interface of Python, so neither its headers nor its library are needed. */
typedef struct object object;
typedef struct { const char *name; void *function; int flags; const char *doc; } method;
static struct {
    object *(*vectorcall)(object *callable, object *const *args, size_t count, object *names);
    object *(*new_function)(method *definition, object *self, object *module);
    object *(*new_capsule)(void *pointer, const char *name, void (*release)(object *));
    void *(*capsule_pointer)(object *capsule, const char *name);
    object *(*no_memory)(void);
    void (*inc_ref)(object *);
    void (*dec_ref)(object *);
    void *(*save_thread)(void);
    void (*restore_thread)(void *);
} python;
static object *none;
static size_t head; /* the size of the head of an object: the address of an array's elements follows */

EXPORT void weft_python(void *const *functions, void *none_, size_t head_) {
    memcpy(&python, functions, sizeof python);
    none = none_, head = head_;
}

typedef struct {
    int (*program)(char *const *table);
    char **table;
    const i64 *is_bound; /* whether the table has the addresses of the buffers */
    intptr_t arrays;
    int is_short;    /* whether a call is so short that it keeps the interpreter's lock */
    object *unbound; /* called instead if the table is not bound */
    object *report;  /* called with the arrays if the program returns an error */
} call;

static object *run(object *capsule, object *const *args, intptr_t count) {
    call *c = python.capsule_pointer(capsule, 0);
    if (!c) return 0;
    if (!*c->is_bound || count != c->arrays) return python.vectorcall(c->unbound, args, count, 0);
    for (intptr_t i = 0; i < count; i++) c->table[i] = *(char **)((char *)args[i] + head);
    void *thread = c->is_short ? 0 : python.save_thread();
    int status = c->program(c->table);
    if (thread) python.restore_thread(thread);
    if (status) return python.vectorcall(c->report, args, count, 0);
    python.inc_ref(none);
    return none;
}

static void release_call(object *capsule) {
    call *c = python.capsule_pointer(capsule, 0);
    python.dec_ref(c->unbound);
    python.dec_ref(c->report);
    free(c);
}

EXPORT object *weft_bind(void *program, void *table, void *is_bound, intptr_t arrays, int is_short,
                         object *unbound, object *report) {
    static method definition = {"run", run, 0x80 /* METH_FASTCALL */, 0};
    call *c = malloc(sizeof *c);
    if (!c) return python.no_memory();
    *c = (call){(int (*)(char *const *))program, table, is_bound, arrays, is_short, unbound, report};
    python.inc_ref(unbound);
    python.inc_ref(report);
    object *capsule = python.new_capsule(c, 0, release_call);
    if (!capsule) return 0;
    object *bound = python.new_function(&definition, capsule, 0);
    python.dec_ref(capsule);
    return bound;
}
