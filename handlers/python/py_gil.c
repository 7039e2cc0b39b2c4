/* handlers/python/py_gil.c - the interpreter's lock (GIL) in the worker's thread. */
#include <stdio.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "handlers/python/py_priv.h"

/* The worker's thread as the interpreter knows it, while that thread does not hold the lock. */
static PyThreadState *resting;
static unsigned long worker_thread;
static bool in_child; /* of a fork that the handler has made */

void
cn_py_forked(void)
{
    in_child = true;
}

void
cn_py_leave(void)
{
    cn_assert(!resting);
    if (in_child) { /* it would answer for its parent, on the same socket */
        fputs("a child process that the handler has forked returned from the handler's call, and "
              "was ended: let it end with os._exit(), or start programs with subprocess\n",
              stderr);
        _exit(70);
    }
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
