/* store/valkey/valkey_sweep.c - finds the entries of a shared store whose time has come. Worker's
 * thread.
 *
 * Each bucket has a sorted set of its ids by the time at which somebody must look at the entry. A
 * step does not change it, so the time in it may be too early, never too late: the sweeper looks,
 * and puts a live sequence off until it can expire. So each sequence costs a look for each idle
 * time, and nothing for each step.
 *
 * Of all workers of all nodes, the one that holds the lease sweeps. The lease ends by itself by the
 * server's clock when its holder is gone. Each holder gets a higher fencing number, and a bucket
 * that has seen a higher one refuses the call, so a holder that was stopped for a while changes
 * nothing. Closing does not depend on this: each tombstone is a conditional write. Ids that are
 * given out come again after CLAIM_MS, unless their entries are closed or put off. So nothing is
 * forgotten when a worker dies in the middle. */
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "store/valkey/valkey_priv.h"

#define LEASE_MS 5000
#define RENEW_MS 1500 /* the holder asks again after this time */
#define ASK_MS 2500   /* another worker asks again after this time */
#define CLAIM_MS 60000
#define BUCKET_IDS 1 /* ids that each bucket gives for a page */
#define PAGE (CN_VALKEY_BUCKETS * BUCKET_IDS)

struct finding {
    struct cn_valkey_store *vs;
    bool renews; /* the first command of the trip renews the lease */
    bool late;
    int rc;
    struct cn_error *err;
};

static void
on_lease(void *ctx, uint32_t i, const redisReply *reply)
{
    struct finding *finding = ctx;
    struct cn_valkey_store *vs = finding->vs;

    (void)i;
    vs->sweep.fence = 0;
    if (reply->type == REDIS_REPLY_INTEGER)
        vs->sweep.fence = reply->integer > 0 ? (uint64_t)reply->integer : 0;
    else
        finding->rc = cn_valkey_fail_reply(vs, reply, finding->err);
}

/* The lease may have been lost with the data of its server, and the buckets of other servers still
 * know the numbers of earlier holders. So the next number is above all that this worker met. */
static void
put_lease(struct cn_valkey_store *vs)
{
    cn_valkey_call(vs, 0, 1, 4);
    cn_valkey_key_word(vs, 0, CN_VALKEY_LEASE);
    cn_valkey_word(&vs->link, CN_STR("lease"));
    cn_valkey_number_word(vs, vs->sweep.owner);
    cn_valkey_number_word(vs, LEASE_MS);
    cn_valkey_number_word(vs, vs->sweep.met + 1);
}

/* Asks for the lease, if it is time and this worker does not hold it. A holder renews it when it
 * looks for entries, in the same trip, because the steps wait for each trip. */
static int
ask_for_lease(struct cn_valkey_store *vs, struct finding *finding)
{
    const uint64_t deadline_us = cn_valkey_deadline_us(&vs->link), now_ms = cn_now_ms();
    int rc;

    finding->renews = vs->sweep.fence && now_ms >= vs->sweep.ask_ms;
    if (vs->sweep.fence || now_ms < vs->sweep.ask_ms)
        return 0;
    put_lease(vs);
    rc = cn_valkey_trip(vs, false, on_lease, finding, deadline_us, finding->err);
    vs->sweep.ask_ms = now_ms + (vs->sweep.fence ? RENEW_MS : ASK_MS);
    return rc ? rc : finding->rc;
}

static void
on_due(void *ctx, uint32_t i, const redisReply *reply)
{
    struct finding *finding = ctx;
    struct cn_valkey_store *vs = finding->vs;

    if (finding->renews && i == 0) {
        on_lease(ctx, i, reply);
        return;
    }
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer > 0) {
        finding->late = true;
        if ((uint64_t)reply->integer > vs->sweep.met)
            vs->sweep.met = (uint64_t)reply->integer;
    } else if (reply->type != REDIS_REPLY_ARRAY) {
        finding->rc = cn_valkey_fail_reply(vs, reply, finding->err);
    }
    for (size_t j = 0; reply->type == REDIS_REPLY_ARRAY && j < reply->elements; j++) {
        const struct cn_str id = cn_valkey_text(reply->element[j]);

        if (id.len > 0 && id.len <= CN_STORE_KEY_MAX && vs->n_listed < PAGE)
            vs->listed[vs->n_listed++].id = cn_arena_str(&vs->arena, id);
    }
}

/* Appends a bucket's call. It puts off what the last page has put off there. */
static void
put_due(struct cn_valkey_store *vs, unsigned bucket, uint64_t now_ms)
{
    uint32_t n_later = 0;

    for (uint32_t i = 0; i < vs->sweep.n_later; i++)
        n_later += vs->sweep.later[i].bucket == bucket;
    cn_valkey_call(vs, bucket, 2, 5 + 2 * n_later);
    cn_valkey_key_word(vs, bucket, CN_VALKEY_TIMES);
    cn_valkey_key_word(vs, bucket, CN_VALKEY_FENCE);
    cn_valkey_word(&vs->link, CN_STR("due"));
    cn_valkey_number_word(vs, vs->sweep.fence);
    cn_valkey_number_word(vs, now_ms);
    cn_valkey_number_word(vs, BUCKET_IDS);
    cn_valkey_number_word(vs, now_ms + CLAIM_MS);
    for (uint32_t i = 0; i < vs->sweep.n_later; i++) {
        const struct cn_valkey_later *later = &vs->sweep.later[i];

        if (later->bucket != bucket)
            continue;
        cn_valkey_number_word(vs, later->at_ms);
        cn_valkey_word(&vs->link, (struct cn_str){later->id, later->len});
    }
}

int
cn_valkey_due(struct cn_store *store, uint64_t now_ms, struct cn_store_due *out, uint32_t max,
              uint32_t *n, struct cn_error *err)
{
    struct cn_valkey_store *vs = cn_valkey_of(store);
    const uint64_t deadline_us = cn_valkey_deadline_us(&vs->link), begun_ms = cn_now_ms();
    struct cn_error own;
    struct finding finding = {.vs = vs, .err = err ? err : &own};
    int rc;

    cn_assert(vs->open && max >= PAGE);
    *n = 0;
    if ((rc = ask_for_lease(vs, &finding)) == 0 && vs->sweep.fence) {
        vs->listed = cn_arena_alloc(&vs->arena, PAGE * sizeof(*vs->listed));
        vs->n_listed = vs->next_listed = 0;
        if (finding.renews)
            put_lease(vs);
        for (unsigned bucket = 0; bucket < CN_VALKEY_BUCKETS; bucket++)
            put_due(vs, bucket, now_ms);
        rc = cn_valkey_trip(vs, false, on_due, &finding, deadline_us, finding.err);
        if (finding.renews)
            vs->sweep.ask_ms = begun_ms + (vs->sweep.fence ? RENEW_MS : ASK_MS);
        vs->sweep.n_later = 0; /* if the trip has failed, they come again */
        /* A server of a cluster that is away keeps its own entries only. */
        rc = rc && vs->n_listed ? 0 : rc ? rc : finding.rc;
    }
    if (finding.late) {
        vs->sweep.fence = 0;
        vs->sweep.ask_ms = cn_now_ms() + ASK_MS;
    }
    if (rc == 0 && vs->sweep.fence)
        rc = cn_valkey_read_fronts(vs, finding.err);
    if (rc != 0 || !vs->sweep.fence)
        return rc;
    for (uint32_t i = 0; i < vs->n_listed; i++)
        if (vs->listed[i].prefix.ptr)
            out[(*n)++] = (struct cn_store_due){vs->listed[i].id, vs->listed[i].prefix};
    vs->n_listed = vs->next_listed = 0;
    return 0;
}

void
cn_valkey_later(struct cn_store *store, struct cn_str key, uint64_t at_ms)
{
    struct cn_valkey_store *vs = cn_valkey_of(store);
    const uint64_t latest_ms = cn_wall_ms() + CN_VALKEY_LOOK_MS;
    struct cn_valkey_later *later;

    if (!vs->sweep.later)
        vs->sweep.later = cn_alloc(PAGE * sizeof(*vs->sweep.later));
    if (vs->sweep.n_later == PAGE)
        return; /* it comes again */
    later = &vs->sweep.later[vs->sweep.n_later++];
    later->bucket = cn_valkey_bucket(key);
    later->at_ms = at_ms && at_ms < latest_ms ? at_ms : latest_ms;
    later->len = key.len;
    memcpy(later->id, key.ptr, key.len);
}
