/* The binding: a builtin function of Python that runs a program with arrays of NumPy. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define EXPORT __attribute__((visibility("default")))

/* The field after the head of an array is the address of its elements. */
#define DATA(array) (*(char **)((char *)(array) + sizeof(PyObject)))

typedef struct {
    int (*program)(char *const *table);
    char **table;
    const int64_t *is_bound; /* whether the table has the addresses of the buffers */
    Py_ssize_t arrays;
    int is_short;     /* whether a call is so short that it keeps the interpreter's lock */
    PyObject *unbound; /* called instead if the table is not bound */
    PyObject *report;  /* called with the arrays if the program returns an error */
} call;

static PyObject *run(PyObject *capsule, PyObject *const *args, Py_ssize_t count) {
    call *c = PyCapsule_GetPointer(capsule, 0);
    if (!c) return 0;
    if (!*c->is_bound || count != c->arrays) return PyObject_Vectorcall(c->unbound, args, count, 0);
    for (Py_ssize_t i = 0; i < count; i++) c->table[i] = DATA(args[i]);
    int status;
    if (c->is_short)
        status = c->program(c->table);
    else {
        Py_BEGIN_ALLOW_THREADS
        status = c->program(c->table);
        Py_END_ALLOW_THREADS
    }
    if (status) return PyObject_Vectorcall(c->report, args, count, 0);
    Py_RETURN_NONE;
}

static PyMethodDef method = {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, 0};

static void release(PyObject *capsule) {
    call *c = PyCapsule_GetPointer(capsule, 0);
    Py_XDECREF(c->unbound);
    Py_XDECREF(c->report);
    PyMem_Free(c);
}

EXPORT PyObject *weft_bind(void *program, void *table, void *is_bound, Py_ssize_t arrays,
                           int is_short, PyObject *unbound, PyObject *report) {
    call *c = PyMem_Malloc(sizeof *c);
    if (!c) return PyErr_NoMemory();
    *c = (call){(int (*)(char *const *))program, table, is_bound, arrays, is_short,
                Py_NewRef(unbound), Py_NewRef(report)};
    PyObject *capsule = PyCapsule_New(c, 0, release);
    if (!capsule) return 0;
    PyObject *bound = PyCFunction_New(&method, capsule);
    Py_DECREF(capsule);
    return bound;
}
