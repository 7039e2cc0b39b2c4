/* worker/state_closing.c - closes sequences in the store and in the cache. Owned by the worker's
 * one thread.
 *
 * Closing has three phases: take the cached objects, write the tombstones in one transaction, and
 * only then call on_close with each state. So the handler never learns of an end that was not
 * committed, and none of its code runs while a write transaction holds the store's lock.
 */
#include <string.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "worker/sequence_state.h"

/* The server closes sequences by its own clock. When it closes one that other nodes may have gone
 * on with, the times in the record decide, and this much is allowed for the two clocks. */
#define CLOCKS_DIFFER_MS 1000
#define CLOSE_AGAIN 3
#define SCRATCH_KEEP_BYTES (1u << 20)

/* A sequence that is being closed. */
struct closing {
    struct cn_sequence_state *cached; /* its decoded state, when it was cached */
    size_t state_at, state_len;       /* otherwise the place of its bytes in `scratch` */
    uint32_t schema;                  /* the schema of those bytes */
    bool has_bytes, live;             /* live: on_close must be called */
    enum cn_store_outcome outcome;    /* what a shared store did with the write */
};

/* Has another node gone on with a sequence that this one takes for expired? */
static bool
lives_elsewhere(const struct cn_states *states, const struct cn_close *close,
                const struct cn_record *record, uint64_t now_wall_ms)
{
    return cn_store_is_shared(states->store) &&
           (close->reason == CN_CLOSE_IDLE || close->reason == CN_CLOSE_LIFETIME) &&
           !cn_states_expired(states, record->opened_wall_ms, record->last_wall_ms,
                              now_wall_ms + CLOCKS_DIFFER_MS);
}

/* Within the write transaction: replaces a live record by its tombstone, and keeps what on_close
 * needs: the cached object if it is of the record's step, else a copy of the state's bytes. Does
 * nothing for a record that is closed already or of another generation. */
static int
close_one(struct cn_states *states, const struct cn_close *close, struct closing *out,
          uint64_t now_wall_ms, struct cn_error *err)
{
    struct cn_record record;
    struct cn_str bytes;
    size_t at = states->scratch.len;
    int rc;

    rc = cn_store_get(states->store, close->sequence_id, &bytes, err);
    if (rc != CN_E_STATE_DAMAGED && (rc != 0 || !bytes.ptr))
        return rc;
    out->outcome = CN_STORE_FAILED; /* until the commit */
    cn_store_expect(states->store, NULL, &out->outcome);
    if (rc != 0 || cn_record_decode(bytes, &record, NULL) != 0) {
        out->live = true; /* damaged: it is removed, and the handler is informed without a state */
        return cn_store_remove(states->store, close->sequence_id, err);
    }
    if ((record.flags & CN_RECORD_TOMBSTONE) ||
        (close->generation && close->generation != record.generation) ||
        lives_elsewhere(states, close, &record, now_wall_ms)) {
        cn_store_expect(states->store, NULL, NULL); /* nothing is written */
        return 0;
    }
    out->live = true;
    if (out->cached &&
        (out->cached->generation != record.generation || out->cached->step != record.step)) {
        cn_states_free(states, out->cached); /* another worker went on with it */
        out->cached = NULL;
    }
    if (!out->cached && (record.flags & CN_RECORD_HAS_STATE)) {
        if (cn_buf_append_str(&states->scratch, record.state) < 0)
            return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory to close sequences");
        *out = (struct closing){.state_at = at,
                                .state_len = record.state.len,
                                .schema = record.schema,
                                .has_bytes = true,
                                .live = true,
                                .outcome = CN_STORE_FAILED};
        at = states->scratch.len;
    }
    /* No job is in flight when the server closes: only a client with a key will ask again. */
    cn_states_bury(states, &record, close->reason, now_wall_ms,
                   (record.flags & CN_RECORD_ASKED) && close->reason != CN_CLOSE_DELETED);
    if ((rc = cn_record_encode(&record, &states->scratch, err)) != 0)
        return rc;
    bytes = (struct cn_str){states->scratch.data + at, states->scratch.len - at};
    rc = cn_store_put(states->store, close->sequence_id, bytes, err);
    states->scratch.len = at; /* the tombstone is in the store, the states stay */
    if (rc > 0) /* the store is full, and the tombstone larger than an old record: remove that */
        rc = cn_store_remove(states->store, close->sequence_id, err);
    return rc;
}

static void
close_tell(struct cn_states *states, const struct cn_close *close, struct closing *closing)
{
    const struct cn_runtime_ops *ops = states->rt->ops;
    struct cn_error err;
    void *state = NULL;

    if (closing->cached) {
        state = closing->cached->state;
    } else if (closing->has_bytes) {
        struct cn_str bytes = {states->scratch.data + closing->state_at, closing->state_len};

        if (cn_states_decode(states, bytes, closing->schema, &state, &err) != 0)
            cn_states_warn(states, "state_unreadable", &err);
    }
    ops->on_close(states->rt, close->sequence_id, state, close->reason);
    if (!closing->cached && state)
        ops->state_free(states->rt, state);
}

/* Has another node changed the record? */
static bool
was_lost(const struct closing *closing)
{
    return closing->live &&
           (closing->outcome == CN_STORE_LOST || closing->outcome == CN_STORE_UNSURE);
}

/* Has this transaction closed the sequence? A shared store decides about each one by itself. */
static bool
is_closed(const struct cn_states *states, const struct closing *closing, int rc)
{
    if (!closing->live)
        return false;
    return cn_store_is_shared(states->store) ? closing->outcome == CN_STORE_WRITTEN : rc == 0;
}

/* Closes up to CN_CLOSE_BATCH sequences. `again`: how often a sequence may be tried again if
 * another node has changed its record meanwhile. */
static int
close_batch(struct cn_states *states, const struct cn_close *closes, uint32_t n, unsigned again,
            struct cn_error *err)
{
    struct closing closing[CN_CLOSE_BATCH] = {0};
    uint64_t now = cn_wall_ms();
    bool lost = false;
    uint32_t i;
    int rc;

    for (i = 0; i < n; i++) {
        closing[i].cached = cn_states_take(states, closes[i].sequence_id);
        if (closing[i].cached && closes[i].generation &&
            closing[i].cached->generation != closes[i].generation) {
            cn_states_free(states, closing[i].cached); /* rare, and costs its next step one read */
            closing[i].cached = NULL;
        }
    }
    cn_buf_reset(&states->scratch);
    rc = cn_store_begin(states->store, CN_STORE_WRITE, err);
    for (i = 0; rc == 0 && i < n; i++)
        cn_states_announce(states, closes[i].sequence_id);
    for (i = 0; rc == 0 && i < n; i++)
        rc = close_one(states, &closes[i], &closing[i], now, err);
    if (rc == 0)
        rc = cn_store_commit(states->store, err);
    else
        cn_store_abort(states->store);
    for (i = 0; i < n; i++) {
        lost |= was_lost(&closing[i]);
        if (is_closed(states, &closing[i], rc))
            close_tell(states, &closes[i], &closing[i]);
        cn_states_free(states, closing[i].cached);
    }
    cn_buf_reset(&states->scratch);
    if (states->scratch.cap > SCRATCH_KEEP_BYTES)
        cn_buf_fini(&states->scratch);
    for (i = 0; lost && rc == 0 && i < n; i++) {
        if (!was_lost(&closing[i]))
            continue;
        rc = again ? close_batch(states, &closes[i], 1, again - 1, err)
                   : cn_fail(err, CN_E_CONTENDED,
                             "a sequence is not closed, because other nodes go on with it");
    }
    return rc;
}

uint32_t
cn_states_close_some(struct cn_states *states, const struct cn_close *closes, uint32_t n,
                     struct cn_error *err)
{
    uint32_t done = 0, some;

    while (done < n) {
        some = n - done < CN_CLOSE_BATCH ? n - done : CN_CLOSE_BATCH;
        if (close_batch(states, closes + done, some, CLOSE_AGAIN, err) != 0)
            break;
        done += some;
    }
    return done;
}
