/* handlers/python/py_limits.c - limits of a handler's time and memory. Worker's thread.
 *
 * Time. Before each call of the handler its end is written down, and a timer is set if none will go
 * off before. The timer sends this thread a signal, for which continuo._runtime has installed a
 * function. Python calls it between two instructions of the handler. The function asks overdue()
 * (py_module.c) and raises TimeUp. A signal also ends a sleep and most other waiting. It does not
 * end code in C that does not wait: then the server replaces the worker (responseTimeout). The
 * timer is rarely set anew: if it was set for an older call, it goes off too early and is set for
 * the present one.
 *
 * Memory. The kernel bounds what the process may reserve (RLIMIT_DATA), so that Python raises
 * MemoryError in the call that wants more. A handler that never frees its memory would fail in each
 * step from then on: if most of the memory is still in use after such a call, the worker is
 * replaced.
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/time/clock.h"
#include "handlers/python/py_priv.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* Above this share of its memory a handler that has run out of it gets a new worker. */
#define WORN_OUT_PERCENT 90

/* --- time --- */

/* A real-time signal, because handlers may use the others. */
int
cn_py_alarm_signal(void)
{
    return SIGRTMAX - 3;
}

static void
set_timer(struct py_rt *rt, uint64_t at_ms)
{
    const uint64_t now = cn_now_ms(), left = at_ms > now ? at_ms - now : 1;
    const struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(left / 1000), .tv_nsec = (long)(left % 1000) * 1000000}};

    if (timer_settime(rt->alarm, 0, &when, NULL) == 0)
        rt->alarm_at_ms = at_ms;
}

void
cn_py_call_begin(struct py_rt *rt, uint64_t deadline_ms)
{
    rt->call_began_ms = cn_now_ms();
    if (rt->call_ms && rt->call_began_ms + rt->call_ms < deadline_ms)
        deadline_ms = rt->call_began_ms + rt->call_ms;
    rt->call_ends_ms = deadline_ms;
    if (rt->has_alarm && deadline_ms < rt->alarm_at_ms)
        set_timer(rt, deadline_ms);
}

void
cn_py_call_end(struct py_rt *rt)
{
    rt->call_ends_ms = CN_NEVER;
}

uint64_t
cn_py_call_overdue(struct py_rt *rt)
{
    const uint64_t now = cn_now_ms(), ends_ms = rt->call_ends_ms;

    if (now >= rt->alarm_at_ms)
        rt->alarm_at_ms = CN_NEVER;
    if (ends_ms == CN_NEVER)
        return 0;
    if (now < ends_ms) {
        if (ends_ms < rt->alarm_at_ms)
            set_timer(rt, ends_ms);
        return 0;
    }
    cn_py_call_end(rt); /* the handler may clean up */
    return ends_ms > rt->call_began_ms ? ends_ms - rt->call_began_ms : 1;
}

static bool
make_alarm(struct py_rt *rt)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = cn_py_alarm_signal()};

    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    return timer_create(CLOCK_MONOTONIC, &event, &rt->alarm) == 0;
}

/* --- memory --- */

/* Returns the bytes that count for RLIMIT_DATA: the sixth number of /proc/self/statm. */
static uint64_t
reserved_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (!file)
        return 0;
    if (fscanf(file, "%*u %*u %*u %*u %*u %lu", &pages) != 1)
        pages = 0;
    fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int
limit_memory(struct py_rt *rt, struct cn_error *err)
{
    const struct rlimit limit = {rt->memory_max, RLIM_INFINITY};
    const uint64_t reserved = reserved_bytes();

    if (rt->memory_max == 0)
        return 0;
    if (reserved >= rt->memory_max)
        return cn_fail(err, CN_E_LOAD_FAILED,
                       "handler.limits.memoryBytes is %llu, but the interpreter alone has reserved "
                       "%llu bytes: raise the limit",
                       (unsigned long long)rt->memory_max, (unsigned long long)reserved);
    if (setrlimit(RLIMIT_DATA, &limit) != 0)
        return cn_fail_sys(err, CN_E_LOAD_FAILED, errno, "handler.limits.memoryBytes (%llu)",
                           (unsigned long long)rt->memory_max);
    return 0;
}

void
cn_py_limits_check_memory(struct py_rt *rt)
{
    if (!rt->out_of_memory)
        return;
    rt->out_of_memory = false;
    PyGC_Collect();
    malloc_trim(0);
    rt->base.worn_out =
        rt->memory_max && reserved_bytes() > rt->memory_max / 100 * WORN_OUT_PERCENT;
}

/* --- both --- */

int
cn_py_limits_open(struct py_rt *rt, const struct cn_load *load, struct cn_error *err)
{
    rt->call_ms = load->step_time_ms;
    rt->memory_max = load->memory_max_bytes;
    rt->call_ends_ms = rt->alarm_at_ms = CN_NEVER;
    return limit_memory(rt, err);
}

void
cn_py_limits_serve(struct py_rt *rt)
{
    rt->has_alarm = make_alarm(rt);
}

void
cn_py_limits_close(struct py_rt *rt)
{
    if (rt->has_alarm)
        timer_delete(rt->alarm);
    rt->has_alarm = false;
}
