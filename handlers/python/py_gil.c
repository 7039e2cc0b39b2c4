/* handlers/python/py_gil.c - the interpreter's lock (GIL) in the worker's thread. */
#include "core/errors/panic.h"
#include "handlers/python/py_priv.h"

/* The worker's thread as the interpreter knows it, while that thread does not hold the lock. */
static PyThreadState *resting;
static unsigned long worker_thread;

void
cn_py_leave(void)
{
    cn_assert(!resting);
    worker_thread = PyThread_get_thread_ident();
    resting = PyEval_SaveThread();
}

void
cn_py_enter(void)
{
    PyThreadState *state = resting;

    cn_assert(state);
    resting = NULL;
    PyEval_RestoreThread(state);
}

bool
cn_py_is_worker_thread(void)
{
    return PyThread_get_thread_ident() == worker_thread;
}
