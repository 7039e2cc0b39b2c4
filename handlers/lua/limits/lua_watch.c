/* handlers/lua/limits/lua_watch.c - ends the process when a call of the handler cannot be
 * stopped in any other way. Worker's thread.
 *
 * The time limit is a hook, which Lua calls between two instructions. One instruction may take
 * long: a pattern that backtracks, table.move or table.sort over a length that a metamethod
 * invents, a concatenation of a hundred megabytes, the run of a TorchScript module. And Lua calls
 * no hook in variables that are closed (__close) while a coroutine ends with the hook's own error.
 *
 * So a timer sends this thread a signal when the model's limit for the call is over. The signal's
 * function lets the hook fire at the next instruction. If the same call uses GRACE_MS more of the
 * processor, the process ends with CN_WORKER_OVERDUE. The server then sends its rows again, each
 * one alone, and the row that ends a worker alone gets the error of a time limit. If the call was
 * for no row (close, a timer, migrate of a state that no row needs), the status is
 * CN_WORKER_OVERDUE_APART, and the rows are sent again as after any other death. A description is a
 * row, and so is a step whose own state is migrated.
 *
 * A step makes no system call for that. The timer is set if none will go off before; one that was
 * set for an older call goes off too early, and is set again for the present one. The grace is
 * processor time, because a machine that is busy elsewhere is not the handler's fault. The limit of
 * the client alone never ends a worker: clients choose it.
 */
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/time/clock.h"
#include "handlers/lua/lua_priv.h"
#include "proto/frame.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* How much of the processor's time a call may use after its limit, to leave the handler. */
#define GRACE_MS 500

/* A signal's function gets no pointer, and there is one runtime in a worker's process. */
static struct lua_rt *volatile watched;

static int
alarm_signal(void)
{
    return SIGRTMAX - 3;
}

static void
set_timer(timer_t timer, uint64_t ms)
{
    const struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000}};

    timer_settime(timer, 0, &when, NULL);
}

static void
set_alarm(struct lua_rt *rt, uint64_t at_ms)
{
    const uint64_t now_ms = cn_now_ms();

    rt->watch.alarm_at_ms = at_ms;
    set_timer(rt->watch.alarm, at_ms > now_ms ? at_ms - now_ms : 1);
}

/* Only functions that are safe in a signal's function: lua_sethook is one. */
static void
on_alarm(struct lua_rt *rt)
{
    const uint64_t ends_ms = rt->watch.ends_ms;

    rt->watch.alarm_at_ms = CN_NEVER;
    if (ends_ms == CN_NEVER)
        return;
    if (cn_now_ms() < ends_ms) {
        set_alarm(rt, ends_ms);
        return;
    }
    cn_lua_hook_next(rt);
    rt->watch.overdue_call = rt->watch.call;
    set_timer(rt->watch.grace, GRACE_MS);
}

static void
on_grace(struct lua_rt *rt)
{
    static const char words[] =
        "the handler's call reached its time limit (handler.limits.callMSec) in a function that "
        "cannot be interrupted\n";
    static const char apart[] =
        "a call of the handler beside its steps (close, a timer, migrate without a step) reached "
        "its "
        "time limit (handler.limits.callMSec) in a function that cannot be interrupted\n";

    if (rt->watch.ends_ms == CN_NEVER || rt->watch.overdue_call != rt->watch.call)
        return;
    if (rt->watch.apart) {
        (void)!write(STDERR_FILENO, apart, sizeof(apart) - 1);
        _exit(CN_WORKER_OVERDUE_APART);
    }
    (void)!write(STDERR_FILENO, words, sizeof(words) - 1);
    _exit(CN_WORKER_OVERDUE);
}

static void
on_signal(int number, siginfo_t *info, void *context)
{
    struct lua_rt *rt = watched;

    (void)number, (void)context;
    if (!rt || info->si_code != SI_TIMER)
        return;
    if (info->si_value.sival_int == 0)
        on_alarm(rt);
    else
        on_grace(rt);
}

static int
make_timer(clockid_t clock, int word, timer_t *out, struct cn_error *err)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = alarm_signal()};

    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    event.sigev_value.sival_int = word;
    return timer_create(clock, &event, out) == 0
               ? 0
               : cn_fail_sys(err, CN_E_LOAD_FAILED, errno, "cannot make a timer");
}

int
cn_lua_watch_open(struct lua_rt *rt, struct cn_error *err)
{
    struct sigaction act = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    int rc;

    cn_assert(!watched);
    if ((rc = make_timer(CLOCK_MONOTONIC, 0, &rt->watch.alarm, err)) != 0)
        return rc;
    if ((rc = make_timer(CLOCK_THREAD_CPUTIME_ID, 1, &rt->watch.grace, err)) != 0) {
        timer_delete(rt->watch.alarm);
        return rc;
    }
    watched = rt;
    rt->watch.alarm_at_ms = CN_NEVER;
    rt->watch.works = true;
    if (sigaction(alarm_signal(), &act, NULL) != 0)
        return cn_fail_sys(err, CN_E_LOAD_FAILED, errno, "cannot watch a signal");
    return 0;
}

void
cn_lua_watch_close(struct lua_rt *rt)
{
    if (!rt->watch.works)
        return;
    timer_delete(rt->watch.alarm);
    timer_delete(rt->watch.grace);
    watched = NULL;
    rt->watch.works = false;
}

/* The order matters: the signal may come between any two lines. */
void
cn_lua_watch_call(struct lua_rt *rt, uint64_t ends_ms, bool apart)
{
    rt->watch.call++;
    rt->watch.apart = apart;
    rt->watch.ends_ms = ends_ms;
    if (rt->watch.works && ends_ms < rt->watch.alarm_at_ms)
        set_alarm(rt, ends_ms);
}
