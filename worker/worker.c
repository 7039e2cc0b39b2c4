/* worker/worker.c - the worker's loop: takes frames, runs batches, does the chores between them. It
 * owns everything in the process, and there is one thread.
 *
 * After start.c has loaded the model, cn_worker_turn is called until the server sends STOP or is
 * gone. Each turn does four things: it reads all frames that the socket holds, waiting only if
 * there is nothing to do; it runs one batch of the waiting rows, or one CLOSE or QUERY if that is
 * first; it does a small part of what the store and the sweep have to do; and it does what its
 * timers ask for (tick). Frames are read before each batch, so that rows that came meanwhile join
 * it.
 *
 * A worker never decides to end by itself. If the server is gone, nobody can get an answer any
 * more, so it ends without finishing its batch's output; what was committed is in the store. After
 * STOP it finishes what it has received, and its streams are told to end.
 *
 * An error that a turn returns (a malformed frame, no memory for a frame) ends the process. The
 * server then starts another worker and sends the unanswered rows again.
 */
#include "worker/worker.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/model/model_io.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "worker/batch/control.h"
#include "worker/process/heap.h"
#include "worker/process/kill_point.h"
#include "worker/worker_priv.h"

#define STATS_EVERY_MS 1000
/* How often the store is maintained and memory that only large batches need is given back. */
#define MAINTAIN_EVERY_MS 60000
#define HOLD_POLL_MS 1

/* --- frames --- */

static struct cn_pending *
pending_take(struct cn_worker *worker, struct cn_block *block)
{
    struct cn_list *link = cn_list_pop_front(&worker->spare);
    struct cn_pending *pending =
        link ? cn_container_of(link, struct cn_pending, link) : cn_alloc(sizeof(*pending));

    memset(pending, 0, sizeof(*pending));
    cn_list_init(&pending->link);
    cn_block_ref(block);
    pending->block = block;
    cn_list_push_back(&worker->pending, &pending->link);
    return pending;
}

static int
on_batch(struct cn_worker *worker, const struct cn_frame *frame, struct cn_block *block,
         struct cn_error *err)
{
    uint64_t now = cn_now_ms();
    struct cn_row *rows;
    int rc;

    if ((rc = cn_frame_get_batch(frame, &block->arena, &rows, err)) != 0)
        return rc;
    for (uint32_t i = 0; i < frame->count; i++) {
        struct cn_row *row = &rows[i];
        struct cn_pending *pending;

        if ((row->flags & CN_ROW_STATEFUL) &&
            (row->sequence_id.len < 1 || row->sequence_id.len > CN_SEQUENCE_ID_MAX))
            return cn_fail(err, CN_E_PROTOCOL, "a row has a sequence id of %zu bytes",
                           row->sequence_id.len);
        pending = pending_take(worker, block);
        pending->row = row;
        worker->commits_away.never |= row->flags & CN_ROW_JOINED;
        pending->deadline_ms = row->deadline_ms ? now + row->deadline_ms : CN_NEVER;
        if (row->flags & CN_ROW_STATEFUL)
            pending->id_hash = cn_id_hash(row->sequence_id);
    }
    return 0;
}

static int
on_close(struct cn_worker *worker, const struct cn_frame *frame, struct cn_block *block,
         struct cn_error *err)
{
    struct cn_pending *pending;
    struct cn_close *closes;
    int rc;

    if ((rc = cn_frame_get_closes(frame, &block->arena, &closes, err)) != 0)
        return rc;
    for (uint32_t i = 0; i < frame->count; i++)
        if (closes[i].sequence_id.len < 1 || closes[i].sequence_id.len > CN_SEQUENCE_ID_MAX)
            return cn_fail(err, CN_E_PROTOCOL, "CLOSE has a sequence id of %zu bytes",
                           closes[i].sequence_id.len);
    pending = pending_take(worker, block);
    pending->closes = closes;
    pending->n_closes = frame->count;
    return 0;
}

/* Cancels a row that still waits. A row that is not found was answered already. */
static void
cancel_waiting(struct cn_worker *worker, const struct cn_cancel *cancel)
{
    struct cn_list *link;

    cn_list_for_each(link, &worker->pending) {
        struct cn_pending *pending = cn_container_of(link, struct cn_pending, link);

        if (!pending->row || pending->row->job_id != cancel->job_id)
            continue;
        if (pending->stop != CN_STOP_GONE) /* GONE also refuses the row, so it must not be lost */
            pending->stop = cancel->reason;
        return;
    }
}

static int
on_query(struct cn_worker *worker, const struct cn_frame *frame, struct cn_block *block,
         struct cn_error *err)
{
    struct cn_query *query = cn_arena_alloc(&block->arena, sizeof(*query));
    int rc;

    if ((rc = cn_frame_get_query(frame, query, err)) != 0)
        return rc;
    pending_take(worker, block)->query = query;
    return 0;
}

static int
on_cancel(struct cn_worker *worker, const struct cn_frame *frame, struct cn_block *block,
          struct cn_error *err)
{
    struct cn_cancel *cancels;
    int rc;

    if ((rc = cn_frame_get_cancels(frame, &block->arena, &cancels, err)) != 0)
        return rc;
    for (uint32_t i = 0; i < frame->count; i++)
        if (!cn_stream_cancel(worker, &cancels[i]))
            cancel_waiting(worker, &cancels[i]);
    return 0;
}

static int
on_credit(struct cn_worker *worker, const struct cn_frame *frame, struct cn_block *block,
          struct cn_error *err)
{
    struct cn_credit *credits;
    int rc;

    if ((rc = cn_frame_get_credits(frame, &block->arena, &credits, err)) != 0)
        return rc;
    for (uint32_t i = 0; i < frame->count; i++)
        cn_stream_credit(worker, &credits[i]);
    return 0;
}

static int
on_frame(struct cn_worker *worker, const struct cn_frame *frame, struct cn_block *block,
         struct cn_error *err)
{
    switch (frame->type) {
    case CN_FRAME_BATCH:
        return on_batch(worker, frame, block, err);
    case CN_FRAME_CLOSE:
        return on_close(worker, frame, block, err);
    case CN_FRAME_CANCEL:
        return on_cancel(worker, frame, block, err);
    case CN_FRAME_QUERY:
        return on_query(worker, frame, block, err);
    case CN_FRAME_STOP:
        worker->stopping = true;
        cn_streams_stop_all(worker);
        return 0;
    case CN_FRAME_CREDIT:
        return on_credit(worker, frame, block, err);
    case CN_FRAME_LOAD:
    case CN_FRAME_LOADED:
    case CN_FRAME_ANSWER:
    case CN_FRAME_STATS:
    case CN_FRAME_CLOSED:
    case CN_FRAME_RESULT:
    case CN_FRAME_REPORT:
    case CN_FRAME_FORK:
    case CN_FRAME_FORKED:
    case CN_FRAME_PROGRESS:
        break;
    }
    return cn_fail(err, CN_E_PROTOCOL, "frame of type %d is not for a running worker", frame->type);
}

/* Reads all frames that the socket holds; waits up to `timeout_ms` for the first byte. */
static int
take_frames(struct cn_worker *worker, int timeout_ms, struct cn_error *err)
{
    struct cn_channel *channel = &worker->channel;
    struct cn_frame frame;
    struct cn_block *block;
    int rc;

    do {
        if ((rc = cn_channel_read(channel, timeout_ms, err)) != 0 || channel->eof)
            return rc;
        while (!worker->stopping && (rc = cn_channel_next(channel, &frame, &block, err)) > 0)
            if ((rc = on_frame(worker, &frame, block, err)) != 0)
                return rc;
        if (rc < 0)
            return rc;
        timeout_ms = 0;
    } while (channel->more && !worker->stopping);
    return 0;
}

/* Sends the pieces of a row whose handler runs, and reads the frames that came meanwhile: one of
 * them may tell that the client is gone, or that it has taken earlier pieces. This is the function
 * `send` of struct cn_runtime. */
static enum cn_stop_reason
send_pieces(void *ctx, struct cn_item *item)
{
    struct cn_worker *worker = ctx;
    const struct cn_pending *pending = cn_stream_send(worker, item);

    if (!pending)
        return CN_STOP_NONE;
    if (worker->broken.code == 0 && !worker->stopping &&
        cn_channel_flush(&worker->channel, &worker->broken) == 0)
        take_frames(worker, 0, &worker->broken);
    return pending->stop;
}

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

/* Resident memory, from the second number of /proc/self/statm. */
static uint64_t
rss_bytes(void)
{
    char text[128];
    unsigned long total, resident;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return 0;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    if (sscanf(text, "%lu %lu", &total, &resident) != 2)
        return 0;
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Returns the CPU time since the worker began, without that of waiting. The latter is an estimate
 * that may be too large for a while, so the result never falls below the last one. */
static uint64_t
busy_until_now(const struct cn_worker *worker)
{
    const uint64_t all_us = cn_cpu_us(), waited_us = worker->channel.waited_us;

    return all_us > waited_us + worker->busy_us ? all_us - waited_us : worker->busy_us;
}

/* What a shared store has done since the last STATS. */
static void
put_store_stats(struct cn_worker *worker, struct cn_store_stats *out)
{
    const struct cn_store_activity *now = cn_store_activity(worker->states.store);
    struct cn_store_activity *told = &worker->told;

    if (!now)
        return;
    out->shared = true;
    out->connected = now->connected;
    out->since_wall_ms = now->since_wall_ms;
    out->conflicts = now->conflicts - told->conflicts;
    out->reloads = worker->reloads;
    worker->reloads = 0;
    for (unsigned i = 0; i < CN_DURATION_VALUES; i++)
        out->trips[i] = now->trips[i] - told->trips[i];
    for (unsigned i = 0; i < CN_ROWS_VALUES; i++)
        out->commits[i] = now->commits[i] - told->commits[i];
    snprintf(out->last_error, sizeof(out->last_error), "%s", now->last_error);
    *told = *now;
}

static int
stats_send(struct cn_worker *worker, struct cn_error *err)
{
    const uint64_t busy_us = busy_until_now(worker);
    struct cn_worker_stats stats = {
        .rss_bytes = rss_bytes(),
        .batches = worker->batches,
        .rows = worker->rows,
        .streams = cn_streams_count(&worker->streams),
        .busy_us = busy_us - worker->busy_us,
    };

    if (worker->stateful) {
        stats.cached_sequences = cn_lru_count(worker->states.lru);
        stats.cached_bytes = cn_lru_bytes(worker->states.lru);
        stats.stored_sequences = cn_store_count(worker->states.store);
        stats.stored_bytes = cn_store_bytes(worker->states.store);
        put_store_stats(worker, &stats.store);
    }
    if (worker->rt->ops->report)
        worker->rt->ops->report(worker->rt);
    worker->busy_us = busy_us;
    worker->stats_due = false;
    worker->stats_sent_ms = cn_now_ms();
    cn_frame_put_stats(&worker->channel.out, &stats);
    return cn_channel_flush(&worker->channel, err);
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
        return stats_send(worker, err);
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
        rc = stats_send(worker, err); /* counts since the last STATS */
        return rc != 0 ? rc : 1;
    }
    if (!worker->stopping) {
        int ms = wait_ms(worker, max_wait_ms);

        if (worker->commits_away.n) {
            if ((rc = cn_commits_away_wait(worker, ms, err)) != 0)
                return rc;
            ms = 0;
        }
        rc = take_frames(worker, ms, err);
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
    worker->busy_us = busy_until_now(worker); /* STATS does not count the time of loading */
    cn_streams_init(&worker->streams, worker->maintained_ms);
    worker->rt->wake = cn_stream_wake;
    worker->rt->send = send_pieces;
    worker->rt->worker = worker;
    worker->rt->wheel = worker->streams.wheel;
    rc = cn_worker_send_loaded(worker, 0, worker->rt->ops->describe(worker->rt), err);
    cn_kill_pass(CN_KILL_LOADED);
    return rc != 0 ? rc : stats_send(worker, err);
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
