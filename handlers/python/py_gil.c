/* handlers/python/py_gil.c - the interpreter's lock (GIL) in the worker's thread, and what becomes
 * of the worker in a child that is forked. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "handlers/python/py_priv.h"
#include "proto/frame.h"

#define LOCK_FD (CN_WORKER_FD + 1) /* management/workers/spawn.h */

/* The interpreter's state of the worker's thread, kept here while the thread does not hold the
 * lock. */
static PyThreadState *resting;
static unsigned long worker_thread;
static bool in_child;  /* this process is a child that the handler has forked */
static bool by_zygote; /* the fork that is under way makes a worker */

void
cn_py_hide_fds(void)
{
    for (int fd = CN_WORKER_FD; fd <= LOCK_FD; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* A child may outlive the worker. It must neither answer nor keep the next server from the state
 * folder. */
static void
close_fds(void)
{
    for (int fd = CN_WORKER_FD; fd <= LOCK_FD; fd++)
        close(fd);
}

void
cn_py_forked(void)
{
    in_child = !by_zygote;
    if (in_child)
        close_fds();
}

/* What os.fork() does around a fork. It also calls the functions that modules have registered with
 * os.register_at_fork(); the module random draws other numbers in the child because of that. */
void
cn_py_fork(enum cn_fork_moment moment)
{
    switch (moment) {
    case CN_FORK_BEFORE:
        cn_py_enter();
        by_zygote = true;
        PyOS_BeforeFork();
        return;
    case CN_FORK_IN_PARENT:
        PyOS_AfterFork_Parent();
        break;
    case CN_FORK_IN_CHILD:
        PyOS_AfterFork_Child();
        break;
    }
    by_zygote = false;
    cn_py_leave();
}

void
cn_py_leave(void)
{
    cn_assert(!resting);
    if (in_child) { /* the child would answer in its parent's place, on the same socket */
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
