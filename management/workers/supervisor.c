/* management/workers/supervisor.c - one worker: its process is started, loads the model, is
 * watched, and is started again when it ends. On the model queue's loop.
 *
 * A process has ended for us when two things have happened, in either order: its pidfd reported it,
 * so we know how it ended, and its socket was read to the end, since it may hold last answers.
 * cn_worker_check_end() waits for both, and finish_process() then does the rest once, at the end of
 * the turn. Each of the two waits is bounded by a timer: a child of the process that holds the
 * socket cannot keep us waiting, and a process that closed its socket but lives on is killed.
 *
 * A process that had loaded the model is started again at once: its death was probably caused by
 * one step, and the queue finds out which. A process that could not load is started again at once
 * one time, then after 1, 2, 4, ... 30 seconds.
 *
 * There is one timer. What its end means follows from the state, so each change of state sets it
 * anew: start now, loading takes too long, stopping takes too long, and the two waits above.
 */
#include "management/workers/supervisor.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "management/workers/supervisor_priv.h"
#include "metrics/counters/metrics.h"
#include "scheduler/workers/workers.h"

#define BACKOFF_MAX_MS 30000
#define BACKOFF_FIRST_MS 1000

void
cn_worker_arm(struct cn_worker_process *worker, uint64_t delay_ms)
{
    cn_timer_set(cn_loop_wheel(worker->spec->loop), &worker->timer,
                 cn_loop_now_ms(worker->spec->loop) + delay_ms);
}

void
cn_worker_count(struct cn_worker_process *worker, enum cn_metric metric, int n)
{
    struct cn_metrics *metrics = cn_model_queue_metrics(worker->spec->queue);

    if (cn_worker_is_zygote(worker))
        return;
    if (n > 0)
        cn_metrics_add(metrics, metric, (uint64_t)n);
    else
        cn_metrics_sub(metrics, metric, (uint64_t)-n);
}

/* Both facts make an end. The rest is done once, at the end of the turn. */
void
cn_worker_check_end(struct cn_worker_process *worker)
{
    if (worker->exited && worker->lost)
        cn_loop_defer(worker->spec->loop, &worker->finish);
}

void
cn_worker_kill_for(struct cn_worker_process *worker, const char *why)
{
    if (worker->pid && !worker->exited && !worker->killed_for[0])
        snprintf(worker->killed_for, sizeof worker->killed_for, "%s", why);
    cn_spawn_kill(worker->exited ? -1 : worker->pid_fd);
}

/* Writes one of TorchServe's own log sentences, because scripts search its log for them. */
void
cn_worker_say_as_torchserve(const struct cn_worker_process *worker, const char *sentence)
{
    const struct cn_model_about *about = worker->spec->about;

    if (about->says_as_torchserve && !cn_worker_is_zygote(worker))
        cn_log(CN_LOG_INFO, "event=worker_life model=%s version=%s worker=%u text=\"%s\"",
               about->name, about->version, worker->index, sentence);
}

/* --- the end of a process */

static void
on_exit_event(struct cn_watch *watch, uint32_t events)
{
    struct cn_worker_process *worker = cn_container_of(watch, struct cn_worker_process, pid_watch);

    (void)events;
    cn_spawn_kill_group(worker->pid); /* what it has started; it is dead itself, and not reaped */
    if (!cn_spawn_reap(worker->pid_fd, &worker->exit))
        return;
    cn_loop_unwatch(worker->spec->loop, watch);
    worker->exited = true;
    /* Its last answers are still to be read. Only a child of it that holds the socket could keep us
     * from seeing the end. */
    if (!worker->lost)
        cn_worker_arm(worker, CN_WORKER_END_GRACE_MS);
    cn_worker_check_end(worker);
}

/* Gives back what belonged to the process. */
static void
release_process(struct cn_worker_process *worker)
{
    cn_timer_cancel(&worker->timer);
    cn_loop_unwatch(worker->spec->loop, &worker->pid_watch);
    cn_loop_unwatch(worker->spec->loop, &worker->stderr_watch);
    if (worker->pid_fd >= 0)
        close(worker->pid_fd);
    if (worker->stderr_fd >= 0)
        close(worker->stderr_fd);
    worker->pid_fd = worker->stderr_fd = -1;
    cn_worker_link_destroy(worker->link);
    worker->link = NULL;
    cn_stderr_tail_fini(&worker->tail);
    cn_bounds_end(worker->id);
    worker->pid = 0;
    worker->stats = (struct cn_worker_stats){0};
    worker->progress[0] = '\0';
}

/* The model could not be loaded. The first new attempt comes at once, and each further one waits
 * longer. */
static void
back_off(struct cn_worker_process *worker)
{
    uint64_t delay_ms = 0;

    worker->failures++;
    if (worker->failures > 1)
        delay_ms = worker->failures > 7 ? BACKOFF_MAX_MS
                                        : (uint64_t)BACKOFF_FIRST_MS << (worker->failures - 2);
    if (delay_ms > BACKOFF_MAX_MS)
        delay_ms = BACKOFF_MAX_MS;
    worker->state = delay_ms ? CN_WORKER_BACKOFF : CN_WORKER_STARTING;
    cn_worker_arm(worker, delay_ms);
    cn_log(CN_LOG_WARN,
           "event=%s_backoff model=%s version=%s worker=%u failures=%u backoff_ms=%llu",
           cn_worker_is_zygote(worker) ? "zygote" : "worker", worker->spec->about->name,
           worker->spec->about->version, worker->index, worker->failures,
           (unsigned long long)delay_ms);
    worker->ops->on_load_failed(worker->owner, worker, worker->last_exit);
}

static void
say_restart(const struct cn_worker_process *worker)
{
    char sentence[80];

    cn_worker_say_as_torchserve(worker, "Worker disconnected.");
    snprintf(sentence, sizeof sentence, "Auto recovery start timestamp: %llu",
             (unsigned long long)cn_wall_ms());
    cn_worker_say_as_torchserve(worker, sentence);
    snprintf(sentence, sizeof sentence, "Retry worker: %u in 0 seconds.", worker->id);
    cn_worker_say_as_torchserve(worker, sentence);
}

/* The process has ended. The order matters: the end is described first, because the queue answers
 * jobs with these words; then the queue gets its jobs back; then descriptors and link are freed,
 * and the state says what comes next. */
static void
finish_process(struct cn_deferred *deferred)
{
    struct cn_worker_process *worker = cn_container_of(deferred, struct cn_worker_process, finish);

    cn_worker_note_end(worker);
    if (worker->state != CN_WORKER_STOPPING)
        cn_worker_count(worker, CN_M_WORKER_DEATHS, 1);
    if (!worker->exit.by_signal && worker->exit.number == CN_WORKER_OVERDUE)
        worker->overdue = true;
    if (worker->attached) {
        cn_worker_count(worker, CN_M_WORKERS_READY, -1);
        worker->attached = false;
        cn_model_queue_detach(worker->spec->queue, worker->link, worker->overdue,
                              worker->last_exit);
    }
    release_process(worker);
    cn_zygote_end(worker);
    if (worker->state == CN_WORKER_STOPPING) {
        worker->ops->on_gone(worker->owner, worker);
    } else if (!worker->loaded) {
        back_off(worker);
    } else {
        worker->state = CN_WORKER_STARTING;
        cn_worker_arm(worker, 0);
        say_restart(worker);
        worker->ops->on_change(worker->owner, worker);
    }
}

/* --- the start of a process */

/* The machine is the same for all workers, so the log says once what does not hold. */
static void
set_bounds(struct cn_worker_process *worker)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    char quoted[CN_BOUNDS_TEXT + 64];

    cn_bounds_set(&worker->spec->about->bounds, worker->id, worker->pid,
                  cn_worker_is_zygote(worker), worker->unbounded);
    if (!worker->unbounded[0] || atomic_flag_test_and_set(&said))
        return;
    cn_log(CN_LOG_WARN, "event=limits_lacking model=%s version=%s limits=%s",
           worker->spec->about->name, worker->spec->about->version,
           cn_log_quote(worker->unbounded, strlen(worker->unbounded), quoted, sizeof quoted));
}

/* Gives the process to the worker. If this fails, the process is killed. */
static int
join_process(struct cn_worker_process *worker, const struct cn_spawned *process,
             struct cn_error *err)
{
    const struct cn_worker_spec *spec = worker->spec;
    struct cn_load load;
    int rc;

    worker->pid = process->pid;
    worker->pid_fd = process->pid_fd;
    worker->stderr_fd = process->stderr_fd;
    rc = cn_worker_link_create(spec->loop, process->socket_fd, worker->index, spec->max_frame_bytes,
                               &cn_worker_link_events, worker, &worker->link, err);
    if (!rc)
        rc = cn_loop_watch(spec->loop, &worker->pid_watch, worker->pid_fd, EPOLLIN, err);
    if (!rc)
        rc = cn_loop_watch(spec->loop, &worker->stderr_watch, worker->stderr_fd, EPOLLIN, err);
    if (rc) {
        cn_spawn_kill(worker->pid_fd);
        cn_spawn_wait(worker->pid_fd);
        release_process(worker);
        return rc;
    }
    set_bounds(worker);
    cn_model_fill_load(spec->about, spec->store_dir, worker->index, &load);
    cn_worker_link_send_load(worker->link, &load);
    return 0;
}

static void
begun(struct cn_worker_process *worker, int rc, const struct cn_error *err)
{
    char name[32], why[CN_LAST_WORDS_MAX];

    if (rc) {
        snprintf(why, sizeof why, "%s of %.128s/%.128s: %.500s", cn_worker_name(worker, name),
                 worker->spec->about->name, worker->spec->about->version, err->message);
        cn_worker_start_failed(worker, why);
        return;
    }
    worker->state = CN_WORKER_LOADING;
    cn_worker_arm(worker, (uint64_t)worker->spec->about->config.startup_timeout_s * 1000);
    cn_log(CN_LOG_INFO, "event=%s_started model=%s version=%s worker=%u pid=%d",
           cn_worker_is_zygote(worker) ? "zygote" : "worker", worker->spec->about->name,
           worker->spec->about->version, worker->index, (int)worker->pid);
}

void
cn_worker_start_failed(struct cn_worker_process *worker, const char *why)
{
    snprintf(worker->last_exit, sizeof worker->last_exit, "%s", why);
    back_off(worker);
}

void
cn_worker_take_process(struct cn_worker_process *worker, const struct cn_spawned *process)
{
    struct cn_error err;

    begun(worker, join_process(worker, process, &err), &err);
}

static bool
put_off(struct cn_worker_process *worker)
{
    return worker->put_off = worker->spec->held;
}

void
cn_worker_start_alone(struct cn_worker_process *worker)
{
    const struct cn_worker_spec *spec = worker->spec;
    struct cn_spawned process;
    struct cn_error err;
    char label[400];
    int rc;

    if (put_off(worker))
        return;
    cn_worker_label(worker, label, sizeof label);
    rc = cn_spawn(&(struct cn_spawn_spec){.program = spec->about->python ? spec->about->python
                                                                         : spec->program,
                                          .script = spec->about->python_package,
                                          .label = label,
                                          .dir = spec->about->dir,
                                          .temp_dir = spec->about->temp_dir,
                                          .lock_fd = spec->lock_fd},
                  &process, &err);
    if (!rc)
        rc = join_process(worker, &process, &err);
    begun(worker, rc, &err);
}

static void
start_process(struct cn_worker_process *worker)
{
    if (put_off(worker))
        return;
    if (worker->started_before)
        worker->restarts++;
    worker->started_before = true;
    worker->exited = worker->lost = worker->loaded = worker->overdue = false;
    worker->killed_for[0] = worker->lost_for[0] = worker->load_error[0] = '\0';
    worker->started_wall_ms = cn_wall_ms();
    worker->started_ms = cn_now_ms();
    cn_worker_count(worker, CN_M_WORKER_STARTS, 1);
    worker->state = CN_WORKER_LOADING;
    if (cn_worker_is_zygote(worker) || !worker->spec->zygote ||
        !cn_zygote_order(worker->spec->zygote, worker))
        cn_worker_start_alone(worker);
}

static void
on_timer(struct cn_timer *timer)
{
    struct cn_worker_process *worker = cn_container_of(timer, struct cn_worker_process, timer);
    char why[128];

    if (worker->pid && worker->exited) {
        worker->lost = true; /* what a child of the process might still send cannot be read */
        cn_worker_check_end(worker);
    } else if (worker->pid && worker->lost) {
        cn_worker_kill_for(worker, worker->lost_for);
    } else if (worker->state == CN_WORKER_STARTING || worker->state == CN_WORKER_BACKOFF) {
        start_process(worker);
    } else if (worker->state == CN_WORKER_LOADING && worker->put_off) {
        cn_worker_start_alone(worker);
    } else if (worker->state == CN_WORKER_LOADING) {
        snprintf(why, sizeof why, "it did not load the model within %u s (startupTimeout)",
                 worker->spec->about->config.startup_timeout_s);
        cn_worker_kill_for(worker, why);
    } else if (worker->state == CN_WORKER_STOPPING && worker->pid) {
        cn_worker_kill_for(worker, "it did not stop in time");
    } else if (worker->state == CN_WORKER_READY) {
        cn_worker_kill_for(worker, "it did not fork a worker in time"); /* only zygotes set it */
    } else if (worker->state == CN_WORKER_STOPPING) {
        worker->ops->on_gone(worker->owner, worker);
    }
}

/* --- the worker */

struct cn_worker_process *
cn_worker_create(const struct cn_worker_spec *spec, uint32_t index, uint32_t id,
                 const struct cn_worker_ops *ops, void *owner)
{
    struct cn_worker_process *worker = cn_alloc(sizeof *worker);

    cn_assert_on_loop(spec->loop);
    worker->magic = CN_WORKER_MAGIC;
    worker->spec = spec;
    worker->index = index;
    worker->id = id;
    worker->ops = ops;
    worker->owner = owner;
    worker->pid_fd = worker->stderr_fd = -1;
    worker->pid_watch = (struct cn_watch){.fd = -1, .fn = on_exit_event};
    worker->stderr_watch = (struct cn_watch){.fd = -1, .fn = cn_worker_on_stderr};
    cn_list_init(&worker->finish.link);
    worker->finish.fn = finish_process;
    cn_stderr_tail_init(&worker->tail);
    cn_timer_init(&worker->timer, on_timer);
    cn_list_init(&worker->orders);
    worker->state = CN_WORKER_STARTING;
    cn_worker_arm(worker, 0);
    return worker;
}

void
cn_worker_destroy(struct cn_worker_process *worker)
{
    if (!worker)
        return;
    if (worker->pid && !worker->exited) {
        cn_spawn_kill(worker->pid_fd);
        cn_spawn_kill_group(worker->pid);
        cn_spawn_wait(worker->pid_fd);
    }
    /* With a process there still is a link. It belongs to its queue, whose loop no longer runs. */
    if (!worker->attached)
        release_process(worker);
    cn_zygote_forget(worker);
    cn_zygote_end(worker);
    cn_timer_cancel(&worker->timer);
    cn_list_remove(&worker->finish.link);
    worker->magic = 0;
    cn_free(worker);
}

/* The worker has answered everything that it was given: it can stop. */
static void
on_retired(void *ctx)
{
    struct cn_worker_process *worker = cn_cast(struct cn_worker_process, ctx, CN_WORKER_MAGIC);

    if (!worker->lost)
        cn_worker_link_send_stop(worker->link);
}

void
cn_worker_stop(struct cn_worker_process *worker)
{
    enum cn_worker_state before = worker->state;

    if (before == CN_WORKER_STOPPING)
        return;
    worker->state = CN_WORKER_STOPPING;
    cn_zygote_forget(worker);
    if (!worker->pid) {
        cn_worker_arm(worker, 0); /* on_gone comes in a later turn, never from inside this call */
        return;
    }
    cn_worker_arm(worker, (uint64_t)worker->spec->about->config.response_timeout_s * 1000 +
                              CN_WORKER_STOP_GRACE_MS);
    if (before == CN_WORKER_LOADING)
        cn_worker_kill_for(worker, "it was stopped while it loaded the model");
    else if (cn_worker_is_zygote(worker) && !worker->lost)
        cn_worker_link_send_stop(worker->link);
    else if (worker->attached && !worker->lost)
        cn_model_queue_retire(worker->spec->queue, worker->link, on_retired, worker);
    cn_worker_check_end(worker);
}

void
cn_worker_kill(struct cn_worker_process *worker)
{
    cn_worker_stop(worker);
    cn_worker_kill_for(worker, "the server's time to stop had run out");
}

pid_t
cn_worker_strike(struct cn_worker_process *worker, const char *why)
{
    const pid_t pid = worker->exited ? 0 : worker->pid;

    if (pid)
        cn_worker_kill_for(worker, why);
    return pid;
}

void
cn_worker_go_on(struct cn_worker_process *worker)
{
    if (worker->put_off && worker->state != CN_WORKER_STOPPING)
        cn_worker_arm(worker, 0);
}
