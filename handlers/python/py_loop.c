/* handlers/python/py_loop.c - the asyncio loop inside the worker's loop. Worker's thread.
 *
 * There is one thread, and two loops in it. The worker's is the outer one: it waits for frames and,
 * once the handler uses asyncio, also for the descriptor of the asyncio loop's selector
 * (rt->base.event_fd). The asyncio loop gets a turn between two batches when the selector has
 * events, when one of the asyncio loop's timers is due, or when a task in it can go on. Such a turn
 * runs what is ready and never waits.
 */
#include <poll.h>

#include "core/log/log.h"
#include "core/time/clock.h"
#include "handlers/python/py_priv.h"

static void
on_timer(struct cn_timer *timer)
{
    cn_container_of(timer, struct py_rt, loop_timer)->loop_due = true;
}

void
cn_py_loop_begin(struct py_rt *rt, int fd)
{
    cn_timer_init(&rt->loop_timer, on_timer);
    rt->base.event_fd = fd;
    rt->looping = true;
}

void
cn_py_loop_turn(struct py_rt *rt)
{
    PyObject *wait = PyObject_CallFunctionObjArgs(rt->turn, NULL);
    const long wait_ms = wait ? PyLong_AsLong(wait) : 0;

    /* The exception is dropped. Only exceptions like SystemExit leave the asyncio loop, and the
     * task that raised one has it as its result. */
    Py_XDECREF(wait);
    PyErr_Clear();
    rt->loop_due = wait_ms == 0;
    if (!rt->base.wheel) /* the model is still loading */
        return;
    /* If the asyncio loop has more to do at once (wait_ms is 0), the timer is set to now, so that
     * the worker does not sleep before the next turn. */
    cn_timer_set(rt->base.wheel, &rt->loop_timer,
                 wait_ms < 0 ? CN_NEVER : cn_now_ms() + (uint64_t)wait_ms);
}

void
cn_py_loop_poll(struct cn_runtime *base)
{
    struct py_rt *rt = cn_py_rt_of(base);
    struct pollfd events = {.fd = base->event_fd, .events = POLLIN};

    if (!rt->looping || (!rt->loop_due && poll(&events, 1, 0) <= 0))
        return;
    cn_py_enter();
    cn_py_call_begin(rt, CN_NEVER);
    cn_py_loop_turn(rt);
    cn_py_call_end(rt);
    cn_py_leave();
}
