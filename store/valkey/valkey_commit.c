/* store/valkey/valkey_commit.c - sends a transaction's writes to the shared store, which decides
 * about each of them. Worker's thread.
 *
 * A commit either waits for the replies, or is sent first and waits for them later, when the caller
 * wants the decision; then it does all that is described here.
 *
 * All writes of a batch go in one round trip, as calls of the script of valkey_script.c. The steps
 * of live sequences, which nearly all writes are, share calls: a call costs the server more than
 * what the script does for a step. In a cluster the keys of a call must be in one slot, so only
 * steps of the same bucket share one; and while a slot moves from one server to another, each step
 * has a call of its own, because some keys of the bucket have moved and others have not. The script
 * runs alone in the server, so nothing can change the entry between its comparison and its write.
 * If a connection breaks before all replies have come, what was not confirmed is sent again on the
 * next connection until the commit's time is over. That does no step twice: the entry has the
 * number of the write that made it, and the script takes a write that it finds there as done. If
 * the entry has changed instead, nobody knows whether the write was done before that; its outcome
 * is UNSURE. */
#include <string.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/time/clock.h"
#include "store/record/little_endian.h"
#include "store/valkey/valkey_priv.h"

#define DOUBTS_MAX 10 /* how often a cluster is asked again after a refusal that may pass */
/* A call has at most this many steps, and stops growing at this many bytes. The server does nothing
 * else while it runs the script. */
#define CALL_STEPS 64
#define CALL_BYTES (256u << 10)
/* Entries of at most this many bytes are read whole: one command for all of them then costs the
 * server less than one for the first bytes of each. */
#define SMALL_BYTES 400

static void
put_seen(struct cn_valkey_store *vs, const struct cn_store_seen *seen)
{
    unsigned char bytes[CN_VALKEY_SEEN_BYTES] = {CN_VALKEY_LAYOUT};

    if (seen->what != CN_SEEN_RECORD || vs->unconditional) {
        const bool nothing = seen->what == CN_SEEN_NOTHING && !vs->unconditional;

        cn_valkey_word(&vs->link, nothing ? CN_STR("") : CN_STR("*"));
        return;
    }
    bytes[1] = seen->tombstone ? CN_VALKEY_TOMBSTONE : 0;
    put64(bytes + 2, seen->generation);
    put64(bytes + 10, seen->step);
    put64(bytes + 18, seen->last_job);
    cn_valkey_word(&vs->link, (struct cn_str){(char *)bytes, sizeof(bytes)});
}

static struct cn_str
value_of(const struct cn_valkey_store *vs, const struct cn_valkey_write *write)
{
    return (struct cn_str){vs->values.data + write->at, write->len};
}

/* Does the write change nothing but the entry? So it is with a step of a live sequence. */
static bool
is_step(const struct cn_valkey_store *vs, const struct cn_valkey_write *write)
{
    return write->seen.what == CN_SEEN_RECORD && !write->seen.tombstone && write->len > 0 &&
           !write->tombstone && !vs->unconditional;
}

static bool
is_pending_step(const struct cn_valkey_store *vs, uint32_t i)
{
    return !vs->writes[i].done && is_step(vs, &vs->writes[i]);
}

/* Appends one call for the n steps of `sent`, which are of one bucket if the store is a cluster.
 * `bytes` is the size of their values, from which that of the entries in the store is guessed. */
static void
put_steps(struct cn_valkey_store *vs, const uint32_t *sent, uint32_t n, size_t bytes)
{
    const bool small = bytes <= (size_t)n * SMALL_BYTES;

    cn_valkey_call(vs, vs->writes[sent[0]].bucket, n, 1 + 2 * n);
    for (uint32_t i = 0; i < n; i++)
        cn_valkey_entry_word(vs, vs->writes[sent[i]].bucket, vs->writes[sent[i]].key);
    cn_valkey_word(&vs->link, small ? CN_STR("small") : CN_STR("step"));
    for (uint32_t i = 0; i < n; i++) {
        put_seen(vs, &vs->writes[sent[i]].seen);
        cn_valkey_word(&vs->link, value_of(vs, &vs->writes[sent[i]]));
    }
}

/* Appends a call for a write that may open, close or remove a sequence. */
static void
put_change(struct cn_valkey_store *vs, const struct cn_valkey_write *write)
{
    const unsigned bucket = write->bucket;

    cn_valkey_call(vs, bucket, 3, 6);
    cn_valkey_entry_word(vs, bucket, write->key);
    cn_valkey_key_word(vs, bucket, CN_VALKEY_INDEX);
    cn_valkey_key_word(vs, bucket, CN_VALKEY_TIMES);
    cn_valkey_word(&vs->link, CN_STR("change"));
    put_seen(vs, &write->seen);
    cn_valkey_word(&vs->link, value_of(vs, write));
    cn_valkey_word(&vs->link, write->key);
    cn_valkey_word(&vs->link, write->may_remove ? CN_STR("1") : CN_STR("0"));
    cn_valkey_number_word(vs, write->look_at_ms);
}

/* Appends the calls for the n steps of `sent`. */
static void
put_calls(struct cn_valkey_sending *trip, const uint32_t *sent, uint32_t n)
{
    struct cn_valkey_store *vs = trip->vs;
    uint32_t first = 0;
    size_t bytes = 0;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t in_call = i - first;

        if (in_call > 0 && (in_call == CALL_STEPS || bytes >= CALL_BYTES || trip->alone)) {
            put_steps(vs, sent + first, in_call, bytes);
            trip->calls[trip->n_calls++] = (uint32_t)(sent - trip->sent) + i;
            first = i;
            bytes = 0;
        }
        bytes += vs->writes[sent[i]].len;
    }
    if (n > first) {
        put_steps(vs, sent + first, n - first, bytes);
        trip->calls[trip->n_calls++] = (uint32_t)(sent - trip->sent) + n;
    }
}

/* Puts the steps of each bucket next to each other, and appends their calls. */
static void
put_by_bucket(struct cn_valkey_sending *trip, uint32_t *sent)
{
    const struct cn_valkey_store *vs = trip->vs;
    uint32_t ends[CN_VALKEY_BUCKETS + 1] = {0};

    for (uint32_t i = 0; i < vs->n_writes; i++)
        if (is_pending_step(vs, i))
            ends[vs->writes[i].bucket + 1]++;
    for (unsigned bucket = 1; bucket <= CN_VALKEY_BUCKETS; bucket++)
        ends[bucket] += ends[bucket - 1];
    for (uint32_t i = 0; i < vs->n_writes; i++)
        if (is_pending_step(vs, i))
            sent[ends[vs->writes[i].bucket]++] = i;
    /* Now ends[bucket] is where the bucket's steps end. */
    for (unsigned bucket = 0; bucket < CN_VALKEY_BUCKETS; bucket++) {
        const uint32_t first = bucket ? ends[bucket - 1] : 0;

        put_calls(trip, sent + first, ends[bucket] - first);
    }
}

/* Puts the pending writes into calls: the changes one by one, the steps together. Fills in
 * trip->sent and trip->calls. */
static void
put_writes(struct cn_valkey_sending *trip)
{
    struct cn_valkey_store *vs = trip->vs;
    uint32_t first;

    trip->n = trip->n_calls = 0;
    for (uint32_t i = 0; i < vs->n_writes; i++) {
        if (vs->writes[i].done || is_step(vs, &vs->writes[i]))
            continue;
        put_change(vs, &vs->writes[i]);
        trip->sent[trip->n++] = i;
        trip->calls[trip->n_calls++] = trip->n;
    }
    first = trip->n;
    for (uint32_t i = 0; i < vs->n_writes; i++)
        if (is_pending_step(vs, i))
            trip->sent[trip->n++] = i;
    if (vs->link.options.cluster)
        put_by_bucket(trip, trip->sent + first);
    else
        put_calls(trip, trip->sent + first, trip->n - first);
}

/* What the script says about one write. */
static void
on_decision(struct cn_valkey_sending *trip, struct cn_valkey_write *write, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER) {
        write->outcome = reply->integer == 1 ? CN_STORE_WRITTEN
                         : write->unsure     ? CN_STORE_UNSURE
                                             : CN_STORE_LOST;
        write->done = true;
        return;
    }
    if (cn_valkey_fail_reply(trip->vs, reply, trip->err) == CN_E_STORE_UNREACHABLE) {
        trip->passing = true;
        trip->split |= cn_valkey_is_error(reply, "TRYAGAIN");
        return;
    }
    write->outcome = CN_STORE_FAILED;
    write->done = true;
}

/* The reply to a call. A call of steps is answered by an array; an error is about all writes of the
 * call. */
static void
on_reply(void *ctx, uint32_t i, const redisReply *reply)
{
    struct cn_valkey_sending *trip = ctx;
    const uint32_t first = i ? trip->calls[i - 1] : 0;

    for (uint32_t k = first; k < trip->calls[i]; k++) {
        const bool each = reply->type == REDIS_REPLY_ARRAY && k - first < reply->elements;

        on_decision(trip, &trip->vs->writes[trip->sent[k]],
                    each ? reply->element[k - first] : reply);
    }
}

/* What a server has written counts only when its disk or enough replicas have it, too. Writes of a
 * call that got no answer are pending again. */
static void
judge_calls(struct cn_valkey_sending *trip)
{
    for (uint32_t i = 0; i < trip->n_calls; i++) {
        const enum cn_valkey_result result = cn_valkey_result_of(&trip->vs->link, i);

        for (uint32_t k = i ? trip->calls[i - 1] : 0; k < trip->calls[i]; k++) {
            struct cn_valkey_write *write = &trip->vs->writes[trip->sent[k]];

            if (result == CN_COMMAND_LOST) {
                write->done = false;
                write->unsure = true;
            } else if (result == CN_COMMAND_UNCONFIRMED && write->done &&
                       write->outcome == CN_STORE_WRITTEN) {
                write->outcome = CN_STORE_FAILED;
            }
        }
    }
}

/* Sends what is not done and waits for the replies. */
static int
make_trip(struct cn_valkey_sending *trip, uint64_t deadline_us, struct cn_error *err)
{
    struct cn_valkey_store *vs = trip->vs;
    uint64_t begun_us = vs->away.begun_us;
    int rc;

    if (!vs->away.begun) {
        trip->passing = trip->split = false;
        put_writes(trip);
        begun_us = cn_now_us();
    }
    vs->away.begun = false;
    rc = cn_valkey_end_trip(vs, true, on_reply, trip, begun_us, deadline_us, err);
    if (rc != 0)
        judge_calls(trip);
    return rc;
}

static bool
all_done(const struct cn_valkey_store *vs)
{
    for (uint32_t i = 0; i < vs->n_writes; i++)
        if (!vs->writes[i].done)
            return false;
    return true;
}

static void
prepare(struct cn_valkey_store *vs, struct cn_error *err)
{
    struct cn_valkey_sending *trip = &vs->away.trip;

    *trip = (struct cn_valkey_sending){.vs = vs, .err = err};
    trip->sent = cn_arena_alloc(&vs->arena, vs->n_writes * sizeof(*trip->sent));
    trip->calls = cn_arena_alloc(&vs->arena, vs->n_writes * sizeof(*trip->calls));
    vs->away.deadline_us = cn_valkey_deadline_us(&vs->link);
    err->code = 0;
    cn_rows_observe(vs->activity->commits, vs->n_writes);
}

/* Sends the writes until all are decided or the time is over. Returns the error of those that are
 * not decided. */
static int
send_all(struct cn_valkey_store *vs, struct cn_error *err)
{
    const uint64_t deadline_us = vs->away.deadline_us;
    struct cn_valkey_sending *trip = &vs->away.trip;
    unsigned doubts = 0;
    int rc;

    for (;;) {
        if (!vs->away.begun && (rc = cn_valkey_ready(vs, deadline_us, err)) != 0)
            return rc;
        rc = make_trip(trip, deadline_us, err);
        if (all_done(vs))
            return 0;
        if (rc != 0 && (rc != CN_E_STORE_UNREACHABLE || !vs->link.may_retry))
            return rc;
        if (trip->split && !trip->alone)
            trip->alone = true; /* at once */
        else if (rc == 0)
            cn_valkey_link_doubt(&vs->link);
        /* The steps of the cluster's other servers wait for their answers meanwhile. */
        if (cn_now_us() >= deadline_us || (vs->link.options.cluster && ++doubts > DOUBTS_MAX))
            return rc != 0 ? rc : err->code;
    }
}

/* If there is no connection now, nothing is sent, and the commit tries again. */
void
cn_valkey_send(struct cn_store *store)
{
    struct cn_valkey_store *vs = cn_valkey_of(store);

    cn_assert(vs->open && vs->writing && !vs->away.sent && vs->n_writes > 0);
    prepare(vs, &vs->away.err);
    vs->away.sent = true;
    if (cn_valkey_ready(vs, vs->away.deadline_us, &vs->away.err) != 0)
        return;
    vs->away.begun = true;
    vs->away.begun_us = cn_now_us();
    put_writes(&vs->away.trip);
    cn_valkey_talk_begin(&vs->link, true, on_reply, &vs->away.trip, vs->away.deadline_us);
}

bool
cn_valkey_decided(struct cn_store *store)
{
    struct cn_valkey_store *vs = cn_valkey_of(store);

    return !vs->away.begun || cn_valkey_talk_decided(&vs->link) ||
           cn_now_us() >= vs->away.deadline_us;
}

uint32_t
cn_valkey_watch(struct cn_store *store, struct pollfd *watched, uint32_t max)
{
    struct cn_valkey_store *vs = cn_valkey_of(store);

    return vs->away.begun ? cn_valkey_talk_watch(&vs->link, watched, max) : 0;
}

int
cn_valkey_commit(struct cn_store *store, struct cn_error *err)
{
    struct cn_valkey_store *vs = cn_valkey_of(store);
    bool failed = false, lost = false;
    int rc;

    cn_assert(vs->open && vs->writing);
    if (vs->n_writes == 0)
        return 0;
    if (vs->away.sent)
        *err = vs->away.err; /* of replies that are here already */
    else
        prepare(vs, err);
    vs->away.trip.err = err;
    rc = send_all(vs, err);
    for (uint32_t i = 0; i < vs->n_writes; i++) {
        struct cn_valkey_write *write = &vs->writes[i];
        bool conflict;

        if (!write->done)
            write->outcome = CN_STORE_FAILED;
        if (write->tell)
            *write->tell = write->outcome;
        failed |= write->outcome == CN_STORE_FAILED;
        conflict = write->outcome == CN_STORE_LOST || write->outcome == CN_STORE_UNSURE;
        vs->activity->conflicts += conflict;
        lost |= conflict && !write->tell;
    }
    if (failed)
        return rc ? rc : err->code;
    return lost ? cn_fail(err, CN_E_CONFLICT,
                          "another node changed the sequence at the same time; send it again")
                : 0;
}
