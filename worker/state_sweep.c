/* worker/state_sweep.c - finds sequences that have expired, and tombstones whose time is over.
 * Owned by the worker's one thread.
 *
 * Normally the server closes sequences: it knows their times and sends CLOSE. After a restart it
 * does not know sequences that nobody has used since; for these a sweep walks through the store, a
 * few records at a time. It waits SWEEP_GRACE_MS longer than the limit, so that it never closes a
 * sequence whose step is waiting in a queue.
 */
#include <string.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "worker/sequence_state.h"

/* The sweep looks at SWEEP_RECORDS records every SWEEP_EVERY_MS at most. A million records take ten
 * minutes and 0.05 % of a core. */
#define SWEEP_RECORDS 16
#define SWEEP_EVERY_MS 10
#define SWEEP_PAUSE_MS 60000
#define SWEPT_MAX CN_STORE_DUE_MAX /* records that a sweep finds at most, in any store */
/* A shared store is asked for what has expired, and that rarely while nothing has. */
#define SHARED_SWEEP_MS 1000
/* If the store is slow, a sweep makes the next batch wait for its round trips, too. So the pause
 * after it is this many times as long as it took, within limits: a worker that stood still during a
 * sweep should not think for long that the store is slow. */
#define SHARED_PAUSE_TIMES 10
#define SHARED_PAUSE_MAX_MS 10000
/* The sweep goes on after batches. A worker without batches sweeps by a timer: at fewer moments,
 * but it then looks at more records, so that it looks at as many per second as a busy worker. Each
 * such moment has a limit in time, because a step may come. */
#define SWEEP_IDLE_MS 100
#define SWEEP_IDLE_TIMES 10
#define SWEEP_IDLE_MAX_US 1000
/* The server closes the sequences that it knows on time, and the sweep closes the others. It is
 * late on purpose: it must not close a sequence whose step waits in a queue. */
#define SWEEP_GRACE_MS 60000

/* Removes tombstones whose time is over from the store, in one transaction. If a shared store
 * refuses to remove one, another node has opened the sequence anew, and nothing is left to do. */
static int
forget(struct cn_states *states, const struct cn_str *ids, unsigned n, uint64_t now_wall_ms,
       struct cn_error *err)
{
    enum cn_store_outcome outcomes[SWEPT_MAX]; /* the store needs a place for them */
    struct cn_record record;
    struct cn_str bytes;
    int rc;

    if (n == 0)
        return 0;
    if ((rc = cn_store_begin(states->store, CN_STORE_WRITE, err)) != 0)
        return rc;
    for (unsigned i = 0; i < n; i++)
        cn_states_announce(states, ids[i]);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        /* It may have been opened again since it was looked at. */
        if ((rc = cn_store_prefix(states->store, ids[i], &bytes, err)) == 0 && bytes.ptr &&
            cn_record_peek(bytes, &record, NULL) == 0 && (record.flags & CN_RECORD_TOMBSTONE) &&
            cn_states_forgotten(states, &record, now_wall_ms)) {
            cn_store_expect(states->store, NULL, &outcomes[i]);
            rc = cn_store_remove(states->store, ids[i], err);
        }
    }
    if (rc == 0)
        return cn_store_commit(states->store, err);
    cn_store_abort(states->store);
    return rc;
}

/* What one turn of the sweep has found. It is collected in a read transaction, and acted on after
 * it, because closing needs a write transaction. */
struct swept {
    struct cn_close expired[SWEPT_MAX];
    struct cn_str old[SWEPT_MAX];
    unsigned n_expired, n_old;
    char ids[SWEPT_MAX][CN_SEQUENCE_ID_MAX];
};

/* Notes in `swept` whether the record has expired or its tombstone can be removed. Returns false if
 * there is nothing to do with it now; then *later is when there may be, 0 for never. */
static bool
sweep_look(struct cn_states *states, struct swept *swept, unsigned i, struct cn_str id,
           struct cn_str value, uint64_t now, uint64_t *later)
{
    uint64_t late = now > SWEEP_GRACE_MS ? now - SWEEP_GRACE_MS : 0;
    struct cn_record record;
    struct cn_str copy = {swept->ids[i], id.len};
    int reason;

    memcpy(swept->ids[i], id.ptr, id.len);
    *later = 0;
    if (cn_record_peek(value, &record, NULL) != 0)
        return false; /* damaged: its next step says so */
    if (record.flags & CN_RECORD_TOMBSTONE) {
        *later = cn_states_runs_out(record.closed_wall_ms, states->load->tombstone_ms);
        if (!cn_states_forgotten(states, &record, now))
            return false;
        swept->old[swept->n_old++] = copy;
        return true;
    }
    *later = cn_states_expires_at(states, record.opened_wall_ms, record.last_wall_ms);
    reason = cn_states_expired(states, record.opened_wall_ms, record.last_wall_ms, late);
    if (reason)
        swept->expired[swept->n_expired++] =
            (struct cn_close){copy, record.generation, (enum cn_close_reason)reason};
    return reason != 0;
}

static int
sweep_scan(struct cn_states *states, struct swept *swept, uint64_t now, struct cn_error *err)
{
    struct cn_str at = {states->sweep_at, states->sweep_at_len}, id, value;
    uint64_t later;
    int rc;

    if ((rc = cn_store_begin(states->store, CN_STORE_READ, err)) != 0)
        return rc;
    for (unsigned i = 0; i < SWEEP_RECORDS; i++) {
        if ((rc = cn_store_next(states->store, at, &id, &value, err)) != 0)
            break;
        if (!id.ptr) { /* from the start, next time */
            at.len = 0;
            break;
        }
        sweep_look(states, swept, i, id, value, now, &later);
        at = (struct cn_str){swept->ids[i], id.len};
    }
    cn_store_abort(states->store);
    states->sweep_at_len = at.len;
    memmove(states->sweep_at, at.ptr, at.len);
    return rc;
}

/* Asks a shared store what has expired. *more: there may be more of it. */
static int
sweep_due(struct cn_states *states, struct swept *swept, uint64_t now, bool *more,
          struct cn_error *err)
{
    const uint64_t late = now > SWEEP_GRACE_MS ? now - SWEEP_GRACE_MS : 0;
    struct cn_store_due due[CN_STORE_DUE_MAX];
    uint32_t n = 0;
    uint64_t later;
    int rc;

    if ((rc = cn_store_begin(states->store, CN_STORE_READ, err)) != 0)
        return rc;
    rc = cn_store_due(states->store, late, due, CN_STORE_DUE_MAX, &n, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        if (!sweep_look(states, swept, i, due[i].key, due[i].prefix, now, &later))
            cn_store_later(states->store, due[i].key, later);
    cn_store_abort(states->store);
    *more = n > 0;
    return rc;
}

/* Returns when to sweep again, after a sweep that began at `begun_ms`. */
static uint64_t
next_sweep_ms(const struct cn_states *states, uint64_t begun_ms, bool more)
{
    const uint64_t now_ms = cn_now_ms();
    uint64_t pause_ms = (now_ms - begun_ms) * SHARED_PAUSE_TIMES;

    if (more || !cn_store_is_shared(states->store))
        return begun_ms + SWEEP_EVERY_MS;
    if (pause_ms <= SHARED_SWEEP_MS)
        return begun_ms + SHARED_SWEEP_MS;
    if (pause_ms > SHARED_PAUSE_MAX_MS)
        pause_ms = SHARED_PAUSE_MAX_MS;
    return now_ms + pause_ms;
}

/* Looks at the next records and acts on them. Returns false when that failed, or when there are no
 * more for now: the round through the store is over, or a shared store has no more that have
 * expired. */
static bool
sweep(struct cn_states *states)
{
    uint64_t now_ms = cn_now_ms(), now = cn_wall_ms();
    const bool shared = cn_store_is_shared(states->store);
    bool more = false;
    struct cn_error err;
    struct swept swept;
    int rc;

    cn_states_look_at_clock(states, now);
    swept.n_expired = swept.n_old = 0;
    rc = shared ? sweep_due(states, &swept, now, &more, &err)
                : sweep_scan(states, &swept, now, &err);
    states->next_sweep_ms = next_sweep_ms(states, now_ms, more);
    if (rc == 0)
        rc = forget(states, swept.old, swept.n_old, now, &err);
    if (rc == 0 &&
        cn_states_close_some(states, swept.expired, swept.n_expired, &err) < swept.n_expired)
        rc = err.code;
    if (rc == 0)
        return more || states->sweep_at_len > 0;
    cn_states_warn(states, "sweep_failed", &err);
    states->next_sweep_ms = now_ms + SWEEP_PAUSE_MS; /* a full disk should not fill the log too */
    return false;
}

void
cn_states_sweep(struct cn_states *states)
{
    if (cn_now_ms() >= states->next_sweep_ms)
        sweep(states);
}

uint64_t
cn_states_sweep_on_ms(const struct cn_states *states)
{
    if (cn_store_is_shared(states->store))
        return states->next_sweep_ms;
    return states->sweep_at_len ? states->next_sweep_ms + SWEEP_IDLE_MS : CN_NEVER;
}

void
cn_states_sweep_on(struct cn_states *states)
{
    uint64_t until = cn_now_us() + SWEEP_IDLE_MAX_US;

    for (unsigned n = 0; n < SWEEP_IDLE_TIMES && sweep(states) && cn_now_us() < until; n++)
        ;
}
