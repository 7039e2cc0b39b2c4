/* worker/worker.c - the worker's loop: takes frames, runs batches, does the chores between them. It
 * owns everything in the process, and there is one thread.
 *
 * After start.c has loaded the model, cn_worker_turn is called until the server sends STOP or is
 * gone. Each turn does four things: it reads all frames that the socket holds (take_frames.c),
 * waiting only if there is nothing to do; it runs one batch of the waiting rows, or one CLOSE or
 * QUERY if that is first; it does a small part of what the store and the sweep have to do; and it
 * does what its timers ask for (tick). Frames are read before each batch, so that rows that came
 * meanwhile join it.
 *
 * A worker never decides to end by itself. If the server is gone, nobody can get an answer any
 * more, so it ends without finishing its batch's output; what was committed is in the store. After
 * STOP it finishes what it has received, and its streams are told to end.
 *
 * An error that a turn returns (a malformed frame, no memory for a frame) ends the process. The
 * server then starts another worker and sends the unanswered rows again. */
#include "worker/worker.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/model/model_io.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "worker/process/heap.h"
#include "worker/process/kill_point.h"
#include "worker/worker_priv.h"

#define STATS_EVERY_MS 1000
/* How often the store is maintained and memory that only large batches need is given back. */
#define MAINTAIN_EVERY_MS 60000
#define HOLD_POLL_MS 1

/* --- work --- */

static int
run_close(struct cn_worker *worker, struct cn_pending *pending, struct cn_error *err)
{
    struct cn_closed closed = {.count = pending->n_closes, .done = pending->n_closes};
    char quoted[CN_ERROR_MESSAGE_MAX + 64];
    struct cn_error why;

    for (uint32_t i = 0; i < pending->n_closes && cn_streams_count(&worker->streams); i++)
        cn_streams_stop(worker, pending->closes[i].sequence_id, NULL, CN_STOP_ENDED);
    if (worker->stateful)
        closed.done = cn_states_close_some(&worker->states, pending->closes, closed.count, &why);
    /* The sequences that could not be closed stay in the store and expire by their own times. */
    if (closed.done < closed.count) {
        closed.error_code = why.code;
        closed.message = cn_str_from(why.message);
        cn_log(CN_LOG_ERROR, "event=close_failed model=%s open=%u reason=%s",
               worker->load.model_name, closed.count - closed.done,
               cn_log_quote(why.message, strlen(why.message), quoted, sizeof(quoted)));
    }
    /* The server waits for this CLOSED before it sends later steps of these sequences. They find in
     * the store what this call has left there. */
    cn_frame_put_closed(&worker->channel.out, &closed);
    cn_worker_release(worker, pending);
    worker->stats_due = true;
    return cn_channel_flush(&worker->channel, err);
}

static int
run_query(struct cn_worker *worker, struct cn_pending *pending, struct cn_error *err)
{
    cn_worker_answer_query(worker, pending->query);
    cn_worker_release(worker, pending);
    worker->stats_due = true;
    return cn_channel_flush(&worker->channel, err);
}

/* A CLOSE or a QUERY, a stream, and a batch that the server built do not run beside commits that
 * are on their way. */
static bool
runs_alone(const struct cn_worker *worker)
{
    const struct cn_pending *first = cn_container_of(worker->pending.next, struct cn_pending, link);

    return !first->row || cn_streams_count(&worker->streams) > 0 || worker->commits_away.never;
}

static int
run_batch(struct cn_worker *worker, struct cn_error *err)
{
    struct cn_batch_ran ran;
    int rc = cn_worker_begin_batch(worker, &ran, err);

    if (rc != 0 || worker->batch.n == 0)
        return rc;
    if (ran.writes && cn_store_is_shared(worker->states.store) &&
        cn_commits_away_send(worker, &ran))
        return 0;
    rc = cn_worker_end_batch(worker, cn_batch_commit_write(worker, ran.writes), &ran, err);
    if (rc == 0 && worker->commits_away.wanted)
        cn_commits_away_connect(worker);
    return rc;
}

static int
run_next(struct cn_worker *worker, struct cn_error *err)
{
    struct cn_pending *first = cn_container_of(worker->pending.next, struct cn_pending, link);
    int rc;

    if (worker->commits_away.n) {
        if (runs_alone(worker) && (rc = cn_commits_away_end(worker, err)) != 0)
            return rc;
        if (cn_commits_away_hold(worker))
            return 0;
        first = cn_container_of(worker->pending.next, struct cn_pending, link);
    }
    if (first->row)
        return run_batch(worker, err);
    return first->query ? run_query(worker, first, err) : run_close(worker, first, err);
}

/* Does what is due between two batches: maintenance, the sweep, timers, STATS. */
static int
tick(struct cn_worker *worker, struct cn_error *err)
{
    uint64_t now = cn_now_ms();

    if (now - worker->maintained_ms >= MAINTAIN_EVERY_MS) {
        worker->maintained_ms = now;
        if (worker->stateful) {
            cn_store_maintain(worker->states.store);
            cn_states_sweep(&worker->states);
        }
        cn_batch_shed(&worker->batch);
        cn_heap_give_back();
    }
    if (worker->channel.trim_ms <= now) {
        worker->channel.trim_ms =
            cn_body_memory_trim(worker->channel.body_memory) ? now + CN_TRIM_EVERY_MS : CN_NEVER;
        worker->stats_due = true; /* when the server gets STATS, it looks at its half, too */
    }
    if (worker->stateful && cn_states_sweep_on_ms(&worker->states) <= now) {
        cn_states_sweep_on(&worker->states);
        worker->stats_due = true;
    }
    if (cn_timer_wheel_next_ms(worker->streams.wheel) <= now)
        cn_timer_wheel_advance(worker->streams.wheel, now);
    if (worker->rt->event_fd) {
        worker->channel.event_fd = worker->rt->event_fd;
        worker->rt->ops->poll(worker->rt);
    }
    if (cn_streams_count(&worker->streams) > 0) {
        cn_streams_touch(worker);
        worker->stats_due = true;
    }
    if (worker->stats_due && now - worker->stats_sent_ms >= STATS_EVERY_MS)
        return cn_worker_send_stats(worker, err);
    return 0;
}

/* Sends what the handler measured outside of batches: while loading, in describe or in on_close. */
static int
samples_send(struct cn_worker *worker, struct cn_error *err)
{
    struct cn_samples *samples = &worker->rt->samples;

    cn_frame_put_report(&worker->channel.out,
                        &(struct cn_report){.n_samples = samples->n, .samples = samples->list});
    cn_samples_clear(samples);
    return cn_channel_flush(&worker->channel, err);
}

static bool
held(const struct cn_worker *worker)
{
    return worker->hold_file && access(worker->hold_file, F_OK) == 0;
}

/* Returns how long to wait for frames when there is nothing else to do. */
static int
idle_wait_ms(const struct cn_worker *worker)
{
    int wait_ms = worker->stats_due ? STATS_EVERY_MS : MAINTAIN_EVERY_MS;
    uint64_t now = cn_now_ms(), next = cn_timer_wheel_next_ms(worker->streams.wheel), sweep;

    if (worker->stateful && (sweep = cn_states_sweep_on_ms(&worker->states)) < next)
        next = sweep;
    if (worker->channel.trim_ms < next)
        next = worker->channel.trim_ms;
    if (next == CN_NEVER || next >= now + (uint64_t)wait_ms)
        return wait_ms;
    return next > now ? (int)(next - now) : 1;
}

/* Returns how long to wait for frames, at most max_wait_ms. */
static int
wait_ms(const struct cn_worker *worker, int max_wait_ms)
{
    int ms = 0;

    if (cn_list_empty(&worker->pending))
        ms = idle_wait_ms(worker);
    else if (held(worker))
        ms = HOLD_POLL_MS;
    else if (worker->batch.incomplete)
        ms = idle_wait_ms(worker);
    return ms < max_wait_ms ? ms : max_wait_ms;
}

int
cn_worker_turn(struct cn_worker *worker, int max_wait_ms, struct cn_error *err)
{
    int rc;

    if (worker->broken.code != 0) {
        *err = worker->broken;
        return err->code;
    }
    if (worker->rt->samples.n && (rc = samples_send(worker, err)) != 0)
        return rc;
    if (worker->stopping && worker->commits_away.n && (rc = cn_commits_away_end(worker, err)) != 0)
        return rc;
    if (worker->stopping && cn_list_empty(&worker->pending)) {
        if (!worker->stats_due)
            return 0;
        rc = cn_worker_send_stats(worker, err); /* counts since the last STATS */
        return rc != 0 ? rc : 1;
    }
    if (!worker->stopping) {
        int ms = wait_ms(worker, max_wait_ms);

        if (worker->commits_away.n) {
            if ((rc = cn_commits_away_wait(worker, ms, err)) != 0)
                return rc;
            ms = 0;
        }
        rc = cn_worker_take_frames(worker, ms, err);
        if (rc != 0 || worker->channel.eof)
            return rc;
    }
    if (!cn_list_empty(&worker->pending) && (worker->stopping || !held(worker))) {
        if ((rc = run_next(worker, err)) != 0)
            return rc;
        if (worker->stateful) {
            cn_store_work_off(worker->states.store);
            cn_states_sweep(&worker->states);
        }
    }
    if ((rc = tick(worker, err)) != 0)
        return rc;
    return !worker->channel.eof;
}

void
cn_worker_close(struct cn_worker *worker)
{
    struct cn_list *link;

    if (worker->streams.by_job)
        cn_streams_fini(worker);
    cn_commits_away_fini(worker);
    while (!cn_list_empty(&worker->pending)) {
        struct cn_pending *pending = cn_container_of(worker->pending.next, struct cn_pending, link);

        if (pending->row)
            cn_row_enter(pending, CN_ROW_IS_DROPPED);
        cn_worker_release(worker, pending);
    }
    while ((link = cn_list_pop_front(&worker->spare)) != NULL)
        cn_free(cn_container_of(link, struct cn_pending, link));
    cn_batch_fini(&worker->batch);
    if (worker->stateful)
        cn_states_close(&worker->states);
    if (worker->rt)
        worker->rt->ops->close(worker->rt);
    cn_model_io_unref(worker->io);
    if (worker->streams.wheel)
        cn_timer_wheel_destroy(worker->streams.wheel);
    cn_arena_fini(&worker->load_arena);
    cn_channel_fini(&worker->channel);
}

int
cn_worker_open(struct cn_worker *worker, int fd, cn_runtime_find_fn find, char *title,
               struct cn_error *err)
{
    int rc;

    memset(worker, 0, sizeof(*worker));
    worker->hold_file = getenv("CONTINUO_TEST_HOLD");
    cn_channel_init(&worker->channel, fd);
    cn_arena_init(&worker->load_arena);
    cn_list_init(&worker->pending);
    cn_list_init(&worker->spare);
    rc = cn_worker_start(worker, find, title, err);
    if (rc != 0 || worker->channel.eof)
        return rc;
    worker->maintained_ms = cn_now_ms();
    worker->busy_us = cn_worker_busy_us(worker); /* STATS does not count the time of loading */
    cn_streams_init(&worker->streams, worker->maintained_ms);
    worker->rt->wake = cn_stream_wake;
    worker->rt->send = cn_worker_send_pieces;
    worker->rt->worker = worker;
    worker->rt->wheel = worker->streams.wheel;
    rc = cn_worker_send_loaded(worker, 0, worker->rt->ops->describe(worker->rt), err);
    cn_kill_pass(CN_KILL_LOADED);
    return rc != 0 ? rc : cn_worker_send_stats(worker, err);
}

int
cn_worker_run(int fd, cn_runtime_find_fn find, char *title)
{
    struct cn_worker worker;
    struct cn_error err = {0};
    char quoted[CN_ERROR_MESSAGE_MAX + 64];
    int rc;

    cn_kill_arm();
    rc = cn_worker_open(&worker, fd, find, title, &err);
    if (rc == 0 && !worker.channel.eof)
        while ((rc = cn_worker_turn(&worker, INT_MAX, &err)) > 0)
            ;
    if (rc != 0 && err.code != CN_E_UNIMPLEMENTED) /* it cannot be forked: not an error */
        /* What the server was told is in its own log line, worker_ended. */
        cn_log(worker.told_why ? CN_LOG_DEBUG : CN_LOG_ERROR,
               "event=worker_stopped model=%s reason=%s",
               worker.load.model_name ? worker.load.model_name : "-",
               cn_log_quote(err.message, strlen(err.message), quoted, sizeof(quoted)));
    cn_worker_close(&worker);
    return rc && err.code != CN_E_UNIMPLEMENTED ? 1 : 0;
}
