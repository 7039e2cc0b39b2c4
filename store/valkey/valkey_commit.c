/* store/valkey/valkey_commit.c - sends a transaction's writes to the shared store, which decides
 * about each of them. Worker's thread.
 *
 * All writes of a batch go in one round trip, as calls of the script of valkey_script.c. The steps
 * of live sequences, which nearly all writes are, share calls: a call costs the server more than
 * what the script does for a step. (In a cluster the entries of a call would have to be in one
 * bucket.) The script runs alone in the server, so nothing can change the entry between its
 * comparison and its write. If a connection breaks before all replies have come, what was not
 * confirmed is sent again on the next connection until the commit's time is over. That does no step
 * twice: the entry has the number of the write that made it, and the script takes a write that it
 * finds there as done. */
#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/time/clock.h"
#include "store/record/little_endian.h"
#include "store/valkey/valkey_priv.h"

#define SCRIPT_LOADS_MAX 3 /* how often the script is loaded again during one commit */
/* A call has at most this many steps, and stops growing at this many bytes. The server does nothing
 * else while it runs the script. */
#define CALL_STEPS 64
#define CALL_BYTES (256u << 10)

/* One round trip of a commit. */
struct trip {
    struct cn_valkey_store *vs;
    uint32_t *sent;  /* in the arena: the writes that it carries, by their index */
    uint32_t *calls; /* in the arena: where in `sent` the writes of each call end */
    uint32_t n, n_calls;
    struct cn_valkey_confirmed confirmed;
    bool no_script;       /* the server has forgotten the script */
    bool passing;         /* another server, or a later attempt, may take what this one did not */
    struct cn_error *err; /* why a write has failed */
};

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

/* Appends one call for the n steps of `sent`. */
static void
put_steps(struct cn_valkey_store *vs, const uint32_t *sent, uint32_t n)
{
    cn_valkey_call(vs, n, 1 + 2 * n);
    for (uint32_t i = 0; i < n; i++) {
        const struct cn_str id = vs->writes[sent[i]].key;

        cn_valkey_entry_word(vs, cn_valkey_bucket(id), id);
    }
    cn_valkey_word(&vs->link, CN_STR("step"));
    for (uint32_t i = 0; i < n; i++) {
        put_seen(vs, &vs->writes[sent[i]].seen);
        cn_valkey_word(&vs->link, value_of(vs, &vs->writes[sent[i]]));
    }
}

/* Appends a call for a write that may open, close or remove a sequence. */
static void
put_change(struct cn_valkey_store *vs, const struct cn_valkey_write *write)
{
    const unsigned bucket = cn_valkey_bucket(write->key);

    cn_valkey_call(vs, 3, 6);
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

/* Puts the pending writes into calls: the changes one by one, the steps together. Fills in
 * trip->sent and trip->calls. */
static void
put_writes(struct trip *trip)
{
    struct cn_valkey_store *vs = trip->vs;
    uint32_t first;
    size_t bytes = 0;

    trip->n = trip->n_calls = 0;
    for (uint32_t i = 0; i < vs->n_writes; i++) {
        if (vs->writes[i].done || is_step(vs, &vs->writes[i]))
            continue;
        put_change(vs, &vs->writes[i]);
        trip->sent[trip->n++] = i;
        trip->calls[trip->n_calls++] = trip->n;
    }
    first = trip->n;
    for (uint32_t i = 0; i < vs->n_writes; i++) {
        if (vs->writes[i].done || !is_step(vs, &vs->writes[i]))
            continue;
        if (trip->n > first && (trip->n - first == CALL_STEPS || bytes >= CALL_BYTES)) {
            put_steps(vs, trip->sent + first, trip->n - first);
            trip->calls[trip->n_calls++] = first = trip->n;
            bytes = 0;
        }
        trip->sent[trip->n++] = i;
        bytes += vs->writes[i].len;
    }
    if (trip->n > first) {
        put_steps(vs, trip->sent + first, trip->n - first);
        trip->calls[trip->n_calls++] = trip->n;
    }
}

/* What the script says about one write. */
static void
on_decision(struct trip *trip, struct cn_valkey_write *write, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER) {
        write->outcome = reply->integer == 1 ? CN_STORE_WRITTEN : CN_STORE_LOST;
        write->done = true;
        return;
    }
    if (cn_valkey_is_error(reply, "NOSCRIPT")) {
        trip->no_script = true;
        return;
    }
    if (cn_valkey_fail_reply(trip->vs, reply, trip->err) == CN_E_STORE_UNREACHABLE) {
        trip->passing = true;
        return;
    }
    write->outcome = CN_STORE_FAILED;
    write->done = true;
}

/* The reply to a call, or, behind those of all calls, to WAITAOF or WAIT. A call of steps is
 * answered by an array; an error is about all writes of the call. */
static void
on_reply(void *ctx, uint32_t i, const redisReply *reply)
{
    struct trip *trip = ctx;
    const uint32_t first = i ? trip->calls[i - 1] : 0;

    if (i >= trip->n_calls) {
        cn_valkey_take_wait(reply, &trip->confirmed);
        return;
    }
    for (uint32_t k = first; k < trip->calls[i]; k++) {
        const bool each = reply->type == REDIS_REPLY_ARRAY && k - first < reply->elements;

        on_decision(trip, &trip->vs->writes[trip->sent[k]],
                    each ? reply->element[k - first] : reply);
    }
}

/* Makes the trip's writes pending again. */
static void
reopen(struct trip *trip)
{
    for (uint32_t i = 0; i < trip->n; i++)
        trip->vs->writes[trip->sent[i]].done = false;
}

bool
cn_valkey_waits(const struct cn_valkey_store *vs)
{
    return vs->link.options.replicas > 0 || vs->link.waits_for_disk;
}

void
cn_valkey_take_wait(const redisReply *reply, struct cn_valkey_confirmed *confirmed)
{
    if (reply->type == REDIS_REPLY_INTEGER)
        confirmed->replicas = reply->integer;
    else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
             reply->element[0]->type == REDIS_REPLY_INTEGER)
        confirmed->on_disk = reply->element[0]->integer > 0;
}

int
cn_valkey_check_wait(const struct cn_valkey_store *vs, const struct cn_valkey_confirmed *confirmed,
                     struct cn_error *err)
{
    const struct cn_shared_options *options = &vs->link.options;

    if (vs->link.waits_for_disk && !confirmed->on_disk)
        return cn_wire_fail(&vs->link.wire, CN_E_STORE_UNREACHABLE, err,
                            "did not have what was written last on its disk after %u ms "
                            "(durability power, state.storeTimeoutMSec)",
                            options->timeout_ms);
    if (confirmed->replicas >= (long long)options->replicas)
        return 0;
    return cn_fail(
        err, CN_E_STORE_UNREACHABLE,
        "only %lld of %u replicas of the state store have what was written last, after %u ms "
        "(state.replicas)",
        confirmed->replicas, options->replicas, options->timeout_ms);
}

/* What the primary has written counts only when its disk or enough replicas have it, too. */
static int
check_confirmed(struct trip *trip)
{
    int rc = cn_valkey_check_wait(trip->vs, &trip->confirmed, trip->err);

    if (rc == 0)
        return 0;
    for (uint32_t i = 0; i < trip->n; i++) {
        struct cn_valkey_write *write = &trip->vs->writes[trip->sent[i]];

        if (write->done && write->outcome == CN_STORE_WRITTEN)
            write->outcome = CN_STORE_FAILED;
    }
    return rc;
}

/* How long the server may wait for its replicas: less than we wait for the server, which looks at
 * the time of such waits every 100 ms. */
static uint64_t
wait_ms(uint64_t deadline_us)
{
    const uint64_t now = cn_now_us();
    const uint64_t left_ms = deadline_us > now ? (deadline_us - now) / 1000 : 0;

    return left_ms > 240 ? left_ms - 120 : left_ms / 2 + 1;
}

void
cn_valkey_put_wait(struct cn_valkey_store *vs, uint64_t deadline_us)
{
    if (vs->link.waits_for_disk) {
        cn_valkey_command(&vs->link, 4);
        cn_valkey_word(&vs->link, CN_STR("WAITAOF"));
        cn_valkey_word(&vs->link, CN_STR("1"));
        cn_valkey_word(&vs->link, CN_STR("0"));
        cn_valkey_number_word(vs, wait_ms(deadline_us));
    }
    if (vs->link.options.replicas == 0)
        return;
    cn_valkey_command(&vs->link, 3);
    cn_valkey_word(&vs->link, CN_STR("WAIT"));
    cn_valkey_number_word(vs, vs->link.options.replicas);
    cn_valkey_number_word(vs, wait_ms(deadline_us));
}

/* Sends what is not done and waits for the replies. */
static int
make_trip(struct trip *trip, uint64_t deadline_us, struct cn_error *err)
{
    struct cn_valkey_store *vs = trip->vs;
    const bool wait = cn_valkey_waits(vs);
    int rc;

    trip->confirmed = (struct cn_valkey_confirmed){0};
    trip->no_script = trip->passing = false;
    put_writes(trip);
    if (wait)
        cn_valkey_put_wait(vs, deadline_us);
    rc = cn_valkey_trip(vs, on_reply, trip, deadline_us, err);
    if (rc == 0 && wait && (rc = check_confirmed(trip)) != 0)
        cn_valkey_link_drop(&vs->link); /* the replicas may follow another primary now */
    else if (rc != 0 && wait)
        reopen(trip); /* they have not been confirmed */
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

/* Sends the writes until all are decided or the time is over. Returns the error of those that are
 * not decided. */
static int
send_all(struct cn_valkey_store *vs, struct cn_error *err)
{
    const uint64_t deadline_us = cn_valkey_deadline_us(&vs->link);
    struct trip trip = {.vs = vs, .err = err};
    unsigned loads = 0;
    int rc;

    trip.sent = cn_arena_alloc(&vs->arena, vs->n_writes * sizeof(*trip.sent));
    trip.calls = cn_arena_alloc(&vs->arena, vs->n_writes * sizeof(*trip.calls));
    for (;;) {
        if ((rc = cn_valkey_ready(vs, deadline_us, err)) != 0)
            return rc;
        rc = make_trip(&trip, deadline_us, err);
        if (all_done(vs))
            return 0;
        if (rc == 0 && trip.passing)
            cn_valkey_link_drop(&vs->link);
        else if (rc == 0 && trip.no_script && ++loads <= SCRIPT_LOADS_MAX)
            rc = cn_valkey_load_script(&vs->link, deadline_us, err);
        else if (rc == 0)
            return cn_fail(err, CN_E_STATE_STORE,
                           "the state store forgets the script of conditional writes each time it "
                           "is loaded");
        if (rc != 0 && rc != CN_E_STORE_UNREACHABLE)
            return rc;
        if (cn_now_us() >= deadline_us)
            return rc != 0 ? rc : err->code;
    }
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
    err->code = 0;
    cn_rows_observe(vs->activity.commits, vs->n_writes);
    rc = send_all(vs, err);
    for (uint32_t i = 0; i < vs->n_writes; i++) {
        struct cn_valkey_write *write = &vs->writes[i];

        if (!write->done)
            write->outcome = CN_STORE_FAILED;
        if (write->tell)
            *write->tell = write->outcome;
        failed |= write->outcome == CN_STORE_FAILED;
        vs->activity.conflicts += write->outcome == CN_STORE_LOST;
        lost |= write->outcome == CN_STORE_LOST && !write->tell;
    }
    if (failed)
        return rc ? rc : err->code;
    return lost ? cn_fail(err, CN_E_CONFLICT,
                          "another node changed the sequence at the same time; send it again")
                : 0;
}
