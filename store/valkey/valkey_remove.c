/* store/valkey/valkey_remove.c - removes what a shared store has of a model version that no node
 * serves any more. Any thread; each call has a connection of its own.
 *
 * Nodes keep no list of who serves what. But every worker that uses a model version asks for its
 * lease again and again (valkey_sweep.c), so a lease that has not ended tells that there is one.
 *
 * A bucket's entries go before their ids leave the index, so whatever interrupts a call, the next
 * one finds the rest. Nothing here is a script, because nobody else writes these keys.
 *
 * A call works for about a second (ROUND_US) and then says how many sequences are left; its caller
 * calls again as long as there are any. With `removes` false nothing of a sequence is removed, and
 * the call only counts. The order of the removal:
 *   entries   DEL of up to 256 values of a bucket, 8 buckets in one trip
 *   times     ZREM of their ids from the bucket's sorted set of times
 *   index     ZREM of their ids from the bucket's sorted set of ids; this is what is counted
 *   the rest  fences, lease and layout, when nothing is left */
#include <stdlib.h>
#include <string.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "store/valkey/valkey_priv.h"

#define BUCKET_PAGE 256
#define BUCKET_PAGE_TEXT "256"
#define GROUP 8 /* buckets that one trip is for: a trip has at most 2048 ids */
#define ROUND_US 1000000
#define COMMANDS_OF_BUCKET 3 /* that remove a page */

struct page {
    uint32_t n;
    struct cn_str ids[BUCKET_PAGE];
};

struct removing {
    struct cn_valkey_store *vs;
    struct page *pages; /* GROUP of them */
    struct cn_shared_removal *out;
    uint64_t now_ms, until_ms; /* the store's clock, and when the lease ends */
    int rc;
    struct cn_error *err;
};

static uint64_t
number_of(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING ? strtoull(reply->str, NULL, 10) : 0;
}

static int
trip(struct removing *removing, cn_valkey_reply_fn on_reply)
{
    struct cn_valkey_store *vs = removing->vs;
    int rc = cn_valkey_trip(vs, false, on_reply, removing, cn_valkey_deadline_us(&vs->link),
                            removing->err);

    return rc ? rc : removing->rc;
}

static bool
is_refusal(struct removing *removing, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ERROR)
        return false;
    removing->rc = cn_valkey_fail_reply(removing->vs, reply, removing->err);
    return true;
}

/* --- is it in use? */

static void
on_lease(void *ctx, uint32_t i, const redisReply *reply)
{
    struct removing *removing = ctx;

    if (is_refusal(removing, reply) || reply->type != REDIS_REPLY_ARRAY)
        return;
    if (i == 0 && reply->elements == 2)
        removing->now_ms =
            number_of(reply->element[0]) * 1000 + number_of(reply->element[1]) / 1000;
    else if (i == 1 && reply->elements == 1)
        removing->until_ms = number_of(reply->element[0]);
}

static int
look_at_lease(struct removing *removing)
{
    struct cn_valkey_store *vs = removing->vs;
    int rc;

    cn_valkey_command(&vs->link, 0, 1);
    cn_valkey_word(&vs->link, CN_STR("TIME"));
    cn_valkey_command(&vs->link, 0, 3);
    cn_valkey_word(&vs->link, CN_STR("HMGET"));
    cn_valkey_key_word(vs, 0, CN_VALKEY_LEASE);
    cn_valkey_word(&vs->link, CN_STR("until"));
    rc = trip(removing, on_lease);
    removing->out->in_use = removing->until_ms > removing->now_ms;
    return rc;
}

/* --- a group of buckets */

static void
on_ids(void *ctx, uint32_t i, const redisReply *reply)
{
    struct removing *removing = ctx;
    struct page *page = &removing->pages[i];

    if (is_refusal(removing, reply) || reply->type != REDIS_REPLY_ARRAY)
        return;
    for (size_t j = 0; j < reply->elements && page->n < BUCKET_PAGE; j++)
        page->ids[page->n++] =
            cn_arena_str(&removing->vs->arena, cn_valkey_text(reply->element[j]));
}

static void
on_removed(void *ctx, uint32_t i, const redisReply *reply)
{
    struct removing *removing = ctx;

    if (!is_refusal(removing, reply) && i % COMMANDS_OF_BUCKET == COMMANDS_OF_BUCKET - 1 &&
        reply->type == REDIS_REPLY_INTEGER)
        removing->out->removed += (uint64_t)reply->integer;
}

/* Removes the page's ids from a sorted set of the bucket. */
static void
put_leave(struct cn_valkey_store *vs, unsigned bucket, struct cn_str set, const struct page *page)
{
    cn_valkey_command(&vs->link, bucket, 2 + page->n);
    cn_valkey_word(&vs->link, CN_STR("ZREM"));
    cn_valkey_key_word(vs, bucket, set);
    for (uint32_t i = 0; i < page->n; i++)
        cn_valkey_word(&vs->link, page->ids[i]);
}

/* Removes a page of each bucket of the group. */
static int
remove_pages(struct removing *removing, unsigned first)
{
    struct cn_valkey_store *vs = removing->vs;
    bool any = false;
    int rc;

    memset(removing->pages, 0, GROUP * sizeof(*removing->pages));
    for (unsigned bucket = first; bucket < first + GROUP; bucket++) {
        cn_valkey_command(&vs->link, bucket, 7);
        cn_valkey_word(&vs->link, CN_STR("ZRANGEBYLEX"));
        cn_valkey_key_word(vs, bucket, CN_VALKEY_INDEX);
        cn_valkey_word(&vs->link, CN_STR("-"));
        cn_valkey_word(&vs->link, CN_STR("+"));
        cn_valkey_word(&vs->link, CN_STR("LIMIT"));
        cn_valkey_word(&vs->link, CN_STR("0"));
        cn_valkey_word(&vs->link, CN_STR(BUCKET_PAGE_TEXT));
    }
    if ((rc = trip(removing, on_ids)) != 0)
        return rc;
    for (unsigned bucket = first; bucket < first + GROUP; bucket++) {
        const struct page *page = &removing->pages[bucket - first];

        if (page->n == 0)
            continue;
        any = true;
        cn_valkey_command(&vs->link, bucket, 1 + page->n);
        cn_valkey_word(&vs->link, CN_STR("DEL"));
        for (uint32_t i = 0; i < page->n; i++)
            cn_valkey_entry_word(vs, bucket, page->ids[i]);
        put_leave(vs, bucket, CN_VALKEY_TIMES, page);
        put_leave(vs, bucket, CN_VALKEY_INDEX, page);
    }
    return any ? trip(removing, on_removed) : 0;
}

/* --- the rest */

static void
on_count(void *ctx, uint32_t i, const redisReply *reply)
{
    struct removing *removing = ctx;

    (void)i;
    if (!is_refusal(removing, reply) && reply->type == REDIS_REPLY_INTEGER)
        removing->out->left += (uint64_t)reply->integer;
}

static int
count_left(struct removing *removing)
{
    struct cn_valkey_store *vs = removing->vs;

    for (unsigned bucket = 0; bucket < CN_VALKEY_BUCKETS; bucket++) {
        cn_valkey_command(&vs->link, bucket, 2);
        cn_valkey_word(&vs->link, CN_STR("ZCARD"));
        cn_valkey_key_word(vs, bucket, CN_VALKEY_INDEX);
    }
    return trip(removing, on_count);
}

static void
on_forgotten(void *ctx, uint32_t i, const redisReply *reply)
{
    (void)i;
    is_refusal(ctx, reply);
}

/* Removes the keys that are not of a sequence. */
static int
forget_version(struct removing *removing)
{
    struct cn_valkey_store *vs = removing->vs;

    for (unsigned bucket = 0; bucket < CN_VALKEY_BUCKETS; bucket++) {
        cn_valkey_command(&vs->link, bucket, bucket == 0 ? 5 : 3);
        cn_valkey_word(&vs->link, CN_STR("DEL"));
        cn_valkey_key_word(vs, bucket, CN_VALKEY_TIMES);
        cn_valkey_key_word(vs, bucket, CN_VALKEY_FENCE);
        if (bucket != 0)
            continue;
        cn_valkey_key_word(vs, bucket, CN_VALKEY_LEASE);
        cn_valkey_key_word(vs, bucket, CN_VALKEY_LAYOUT_KEY);
    }
    return trip(removing, on_forgotten);
}

static int
remove_round(struct removing *removing, bool removes)
{
    const struct cn_shared_options *options = &removing->vs->link.options;
    const uint64_t begun_us = cn_now_us();
    int rc = look_at_lease(removing);

    if (rc == 0 && removes && removing->out->in_use)
        rc = cn_fail(removing->err, CN_E_CONFLICT,
                     "a node still serves model %s version %s, because the lease of its workers "
                     "has not ended; unregister it on all nodes, and wait for 5 seconds",
                     options->model, options->version);
    for (unsigned first = 0; rc == 0 && removes && first < CN_VALKEY_BUCKETS; first += GROUP) {
        rc = remove_pages(removing, first);
        if (cn_now_us() - begun_us > ROUND_US)
            break;
    }
    if (rc == 0)
        rc = count_left(removing);
    if (rc == 0 && removing->out->left == 0 && !removing->out->in_use)
        rc = forget_version(removing); /* also the layout, which the opening has written */
    return rc;
}

int
cn_shared_store_remove(const struct cn_shared_options *options, bool removes,
                       struct cn_shared_removal *out, struct cn_error *err)
{
    struct removing removing = {.out = out, .err = err};
    struct cn_store *store;
    int rc;

    *out = (struct cn_shared_removal){0};
    if ((rc = cn_shared_store_open(options, &store, err)) != 0)
        return rc;
    removing.vs = cn_valkey_of(store);
    removing.pages = cn_alloc(GROUP * sizeof(*removing.pages));
    rc = remove_round(&removing, removes);
    cn_free(removing.pages);
    cn_store_close(store);
    return rc;
}
