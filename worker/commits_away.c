/* worker/commits_away.c - batches whose commits are on their way to a shared store, while
 * other batches run. Owned by the worker's one thread.
 *
 * With a store that is far away, a worker that waits for each commit makes a step wait twice: until
 * the commit before it is decided, and then for its own. So a batch whose commit was sent is put
 * aside, and the next one runs. Its answers leave when the store has decided about it, as always.
 *
 * This is simple, because the batches do not know of each other:
 * - A row waits as long as a step of its sequence is away. So commits that are on their way at the
 *   same time write different sequences, and it does not matter in which order the store gets them.
 * - Each has a store object of its own, with a connection of its own. What a commit does when a
 *   connection breaks, a script is missing or a slot has moved, it does for itself.
 * - Only the worker's present batch is ever worked on. One that was put aside becomes the present
 *   one again for its end, in which rows that another node was quicker with run again.
 *
 * Connections are made when the store has just answered, so a store that does not answer is found
 * out by a commit that waits for it, and not by one that wants to leave.
 *
 * Batches with anything but plain steps wait for their commits themselves, and so does everything
 * if the store is near: then each batch would only become smaller, and a batch costs more than a
 * row. For the same reason, the next batch runs when the last one has been away for a part of the
 * time that a round trip takes; this also keeps the commits apart. */
#include <poll.h>
#include <string.h>
#include <time.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "worker/worker_priv.h"

/* A store is far if its answers take this long. It is 20 times what a batch costs the server, the
 * worker and the store together (docs/scale.md). */
#define FAR_US 2000
#define WATCHED_MAX 400 /* sockets; in a cluster each commit may wait for many servers */

static bool
is_plain(const struct cn_batch *batch)
{
    for (uint32_t i = 0; i < batch->n; i++) {
        const struct cn_batch_entry *entry = &batch->entries[i];

        if (entry->stream || entry->closed_seq || cn_batch_entry_is(entry, CN_ROW_IS_YIELDED) ||
            (entry->write != CN_WRITE_NOTHING && entry->write != CN_WRITE_STEP))
            return false;
    }
    return !batch->formed;
}

static bool
may_leave(const struct cn_worker *worker)
{
    const struct cn_store_activity *activity = cn_store_activity(worker->states.store);

    return activity->connected && activity->trip_us >= FAR_US && !worker->stopping &&
           !worker->commits_away.never && worker->commits_away.n < CN_COMMITS_AWAY_MAX &&
           cn_streams_count(&worker->streams) == 0 && is_plain(&worker->batch);
}

/* Returns room for one more commit. NULL: it needs a connection first. */
static struct cn_commit_away *
take_room(struct cn_commits_away *all)
{
    for (uint32_t i = 0; all->list && i < CN_COMMITS_AWAY_MAX; i++)
        if (!all->list[i].away && all->list[i].connected)
            return &all->list[i];
    all->wanted = true;
    return NULL;
}

/* Returns one that has no connection. */
static struct cn_commit_away *
unconnected(struct cn_commits_away *all)
{
    for (uint32_t i = 0; i < CN_COMMITS_AWAY_MAX; i++)
        if (!all->list[i].away && !all->list[i].connected)
            return &all->list[i];
    return NULL;
}

void
cn_commits_away_connect(struct cn_worker *worker)
{
    struct cn_commits_away *all = &worker->commits_away;
    struct cn_commit_away *one;
    struct cn_error err;
    int rc = 0;

    if (!all->wanted || !cn_store_activity(worker->states.store)->connected)
        return;
    all->wanted = false;
    if (!all->list) {
        all->list = cn_alloc(CN_COMMITS_AWAY_MAX * sizeof(*all->list));
        memset(all->list, 0, CN_COMMITS_AWAY_MAX * sizeof(*all->list));
    }
    if (!(one = unconnected(all)))
        return;
    if (!one->store && (rc = cn_states_open_further(&worker->states, &one->store, &err)) == 0) {
        cn_batch_init(&one->batch, &worker->load);
        cn_list_init(&one->rows);
    }
    if (rc == 0 && (rc = cn_store_begin(one->store, CN_STORE_READ, &err)) == 0)
        cn_store_abort(one->store);
    one->connected = rc == 0;
    if (rc != 0)
        cn_states_warn(&worker->states, "no_second_connection", &err);
}

static void
swap_batches(struct cn_worker *worker, struct cn_commit_away *one)
{
    const struct cn_batch batch = worker->batch;

    worker->batch = one->batch;
    one->batch = batch;
}

bool
cn_commits_away_send(struct cn_worker *worker, const struct cn_batch_ran *ran)
{
    struct cn_commits_away *all = &worker->commits_away;
    struct cn_commit_away *one;

    if (!may_leave(worker) || !(one = take_room(all)) ||
        cn_batch_commit_send(worker, one->store, &worker->batch.err) != 0)
        return false;
    for (uint32_t i = 0; i < worker->batch.n; i++) {
        struct cn_pending *pending = worker->batch.entries[i].pending;

        cn_list_remove(&pending->link);
        cn_list_push_back(&one->rows, &pending->link);
    }
    one->away = true;
    one->ran = *ran;
    one->until_us = cn_now_us() + worker->load.store_timeout_ms * 1000;
    swap_batches(worker, one);
    worker->batch.n = 0;
    all->n++;
    all->next_us =
        cn_now_us() + cn_store_activity(worker->states.store)->trip_us / CN_COMMITS_AWAY_MAX;
    return true;
}

bool
cn_commits_away_hold(const struct cn_worker *worker)
{
    const struct cn_commits_away *all = &worker->commits_away;

    return all->n && (all->blocked || all->n == CN_COMMITS_AWAY_MAX || cn_now_us() < all->next_us);
}

/* Makes the batch the worker's present one, and answers it. */
static int
end_one(struct cn_worker *worker, struct cn_commit_away *one, struct cn_error *err)
{
    struct cn_commits_away *all = &worker->commits_away;
    uint32_t lost;

    swap_batches(worker, one);
    one->away = all->blocked = false;
    all->n--;
    lost = cn_batch_commit_take(worker, one->store, &one->connected);
    return cn_worker_end_batch(worker, lost, &one->ran, err);
}

/* Ends those about which the store has decided, or all of them. Sets `any` if there was one. */
static int
end_some(struct cn_worker *worker, bool wait, bool *any, struct cn_error *err)
{
    struct cn_commits_away *all = &worker->commits_away;
    int rc;

    *any = false;
    for (uint32_t i = 0; all->n && i < CN_COMMITS_AWAY_MAX; i++) {
        if (!all->list[i].away || (!wait && !cn_store_decided(all->list[i].store)))
            continue;
        *any = true;
        if ((rc = end_one(worker, &all->list[i], err)) != 0)
            return rc;
    }
    return 0;
}

int
cn_commits_away_end(struct cn_worker *worker, struct cn_error *err)
{
    bool any;

    return end_some(worker, true, &any, err);
}

/* Returns for how many microseconds to wait for replies: until a batch may run, a commit's time is
 * over, or the caller has something else to do. */
static uint64_t
wait_us_at_most(const struct cn_worker *worker, int max_wait_ms)
{
    const struct cn_commits_away *all = &worker->commits_away;
    const uint64_t now = cn_now_us();
    uint64_t until = UINT64_MAX;

    if (max_wait_ms > 0)
        until = now + (uint64_t)max_wait_ms * 1000;
    else if (!all->blocked && all->n < CN_COMMITS_AWAY_MAX)
        until = all->next_us;
    for (uint32_t i = 0; i < CN_COMMITS_AWAY_MAX; i++)
        if (all->list[i].away && all->list[i].until_us < until)
            until = all->list[i].until_us;
    return until > now ? until - now : 0;
}

int
cn_commits_away_wait(struct cn_worker *worker, int max_wait_ms, struct cn_error *err)
{
    struct cn_commits_away *all = &worker->commits_away;
    struct pollfd watched[WATCHED_MAX] = {{.fd = worker->channel.fd, .events = POLLIN},
                                          {.fd = worker->channel.event_fd, .events = POLLIN}};
    uint32_t n = worker->channel.event_fd ? 2 : 1;
    struct timespec wait;
    uint64_t wait_us;
    bool any;
    int rc;

    if ((rc = end_some(worker, false, &any, err)) != 0 || any)
        return rc;
    for (uint32_t i = 0; i < CN_COMMITS_AWAY_MAX; i++)
        if (all->list[i].away)
            n += cn_store_watch(all->list[i].store, watched + n, WATCHED_MAX - n);
    wait_us = wait_us_at_most(worker, max_wait_ms);
    wait = (struct timespec){(time_t)(wait_us / 1000000), (long)(wait_us % 1000000) * 1000};
    ppoll(watched, n, &wait, NULL); /* the next turn looks at what came */
    return 0;
}

void
cn_commits_away_fini(struct cn_worker *worker)
{
    struct cn_commits_away *all = &worker->commits_away;
    struct cn_error err;

    for (uint32_t i = 0; all->list && i < CN_COMMITS_AWAY_MAX; i++) {
        if (!all->list[i].store)
            continue;
        if (all->list[i].away)
            end_one(worker, &all->list[i], &err); /* the worker ends anyway */
        cn_batch_fini(&all->list[i].batch);
        cn_store_close(all->list[i].store);
    }
    cn_free(all->list);
    *all = (struct cn_commits_away){0};
}
