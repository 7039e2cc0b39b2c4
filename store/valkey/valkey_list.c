/* store/valkey/valkey_list.c - lists and counts the sequences of a shared store. Worker's thread.
 *
 * The ids of a model version are in 64 sorted sets, one for each bucket. A page of the list is
 * merged from them: each bucket gives its next few ids in order. Behind the last id that a bucket
 * has given, that bucket may have more ids. So the page ends at the lowest of these last ids, and
 * all ids up to there are known. Then the beginnings of the page's entries are read, so a page
 * costs two round trips. */
#include <stdlib.h>
#include <string.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "store/valkey/valkey_priv.h"

#define PAGE 64       /* most entries of a page */
#define BUCKET_PAGE 8 /* ids that each bucket gives for it */
#define BUCKET_PAGE_TEXT "8"
#define COUNT_EVERY_MS 10000 /* the count is for metrics, which need not be newer */

static int
compare(struct cn_str a, struct cn_str b)
{
    const size_t len = a.len < b.len ? a.len : b.len;
    const int order = memcmp(a.ptr, b.ptr, len);

    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static int
compare_listed(const void *a, const void *b)
{
    return compare(((const struct cn_valkey_listed *)a)->id,
                   ((const struct cn_valkey_listed *)b)->id);
}

struct ids {
    struct cn_valkey_store *vs;
    struct cn_str bound; /* ids behind it are left for the next page; ptr NULL: there is none */
    int rc;
    struct cn_error *err;
};

static void
on_ids(void *ctx, uint32_t i, const redisReply *reply)
{
    struct ids *ids = ctx;
    struct cn_valkey_store *vs = ids->vs;
    struct cn_str last = {NULL, 0};

    (void)i;
    if (reply->type != REDIS_REPLY_ARRAY) {
        ids->rc = cn_valkey_fail_reply(vs, reply, ids->err);
        return;
    }
    for (size_t j = 0; j < reply->elements && j < BUCKET_PAGE; j++) {
        const struct cn_str id = cn_valkey_text(reply->element[j]);

        if (id.len == 0 || id.len > CN_STORE_KEY_MAX)
            continue; /* not ours */
        last = cn_arena_str(&vs->arena, id);
        vs->listed[vs->n_listed++].id = last;
    }
    if (reply->elements >= BUCKET_PAGE && last.ptr &&
        (!ids->bound.ptr || compare(last, ids->bound) < 0))
        ids->bound = last;
}

/* Asks every bucket for its ids behind `after`. */
static int
read_ids(struct cn_valkey_store *vs, struct cn_str after, struct cn_str *bound,
         struct cn_error *err)
{
    const uint64_t deadline_us = cn_valkey_deadline_us(&vs->link);
    struct ids ids = {.vs = vs, .err = err};
    char from[CN_STORE_KEY_MAX + 1] = "(";
    int rc;

    if ((rc = cn_valkey_ready(vs, deadline_us, err)) != 0)
        return rc;
    if (after.len)
        memcpy(from + 1, after.ptr, after.len);
    vs->listed = cn_arena_alloc(&vs->arena, CN_VALKEY_BUCKETS * BUCKET_PAGE * sizeof(*vs->listed));
    vs->n_listed = vs->next_listed = 0;
    for (unsigned bucket = 0; bucket < CN_VALKEY_BUCKETS; bucket++) {
        cn_valkey_command(&vs->link, bucket, 7);
        cn_valkey_word(&vs->link, CN_STR("ZRANGEBYLEX"));
        cn_valkey_key_word(vs, bucket, CN_VALKEY_INDEX);
        cn_valkey_word(&vs->link, after.len ? (struct cn_str){from, after.len + 1} : CN_STR("-"));
        cn_valkey_word(&vs->link, CN_STR("+"));
        cn_valkey_word(&vs->link, CN_STR("LIMIT"));
        cn_valkey_word(&vs->link, CN_STR("0"));
        cn_valkey_word(&vs->link, CN_STR(BUCKET_PAGE_TEXT));
    }
    if ((rc = cn_valkey_trip(vs, false, on_ids, &ids, deadline_us, err)) != 0)
        return rc;
    *bound = ids.bound;
    return ids.rc;
}

struct fronts {
    struct cn_valkey_store *vs;
    int rc;
    struct cn_error *err;
};

static void
on_front(void *ctx, uint32_t i, const redisReply *reply)
{
    struct fronts *fronts = ctx;
    struct cn_valkey_listed *listed = &fronts->vs->listed[i];
    struct cn_store_seen seen;
    struct cn_str value;

    listed->prefix = (struct cn_str){NULL, 0};
    if (reply->type == REDIS_REPLY_ERROR) {
        fronts->rc = cn_valkey_fail_reply(fronts->vs, reply, fronts->err);
        return;
    }
    if (cn_valkey_text(reply).len == 0)
        return; /* it was removed meanwhile */
    if (cn_valkey_take_stamp(cn_valkey_text(reply), &seen, &value, NULL) != 0)
        value = CN_STR(""); /* the reader sees that it is damaged */
    listed->prefix = cn_arena_str(&fronts->vs->arena, value);
}

int
cn_valkey_read_fronts(struct cn_valkey_store *vs, struct cn_error *err)
{
    const uint64_t deadline_us = cn_valkey_deadline_us(&vs->link);
    struct fronts fronts = {.vs = vs, .err = err};
    int rc;

    if (vs->n_listed == 0)
        return 0;
    if ((rc = cn_valkey_ready(vs, deadline_us, err)) != 0)
        return rc;
    for (uint32_t i = 0; i < vs->n_listed; i++) {
        const unsigned bucket = cn_valkey_bucket(vs->listed[i].id);

        cn_valkey_command(&vs->link, bucket, 4);
        cn_valkey_word(&vs->link, CN_STR("GETRANGE"));
        cn_valkey_entry_word(vs, bucket, vs->listed[i].id);
        cn_valkey_word(&vs->link, CN_STR("0"));
        cn_valkey_number_word(vs, CN_VALKEY_STAMP_BYTES + CN_STORE_PREFIX_BYTES - 1);
    }
    rc = cn_valkey_trip(vs, false, on_front, &fronts, deadline_us, err);
    return rc ? rc : fronts.rc;
}

/* Example with two buckets that give two ids each: a c and b x. The first bucket may have more
 * behind c, so x is left for the next page, and this page is a b c. A bucket that gives fewer ids
 * than it was asked for has no more, and sets no bound. At least one id is not behind the bound, so
 * every page makes progress. */
static int
read_page(struct cn_valkey_store *vs, struct cn_str after, struct cn_error *err)
{
    struct cn_str bound = {NULL, 0};
    uint32_t n = 0;
    int rc = read_ids(vs, after, &bound, err);

    if (rc != 0)
        return rc;
    qsort(vs->listed, vs->n_listed, sizeof(*vs->listed), compare_listed);
    while (n < vs->n_listed && n < PAGE && (!bound.ptr || compare(vs->listed[n].id, bound) <= 0))
        n++;
    vs->listed_all = n == vs->n_listed && !bound.ptr;
    vs->n_listed = n;
    return cn_valkey_read_fronts(vs, err);
}

/* The store's interface asks for one entry after the other, each time with the key of the last one;
 * the page is kept between these calls. If `after` is not the key that was given last, another
 * listing has begun, and the page is dropped. */
int
cn_valkey_next(struct cn_store *store, struct cn_str after, struct cn_str *key,
               struct cn_str *prefix, struct cn_error *err)
{
    struct cn_valkey_store *vs = cn_valkey_of(store);
    struct cn_error own;
    int rc;

    *key = *prefix = (struct cn_str){NULL, 0};
    if (vs->listed && vs->next_listed && !cn_str_eq(vs->listed[vs->next_listed - 1].id, after))
        vs->n_listed = vs->next_listed = 0; /* the caller begins anew */
    for (;;) {
        while (vs->next_listed < vs->n_listed) {
            const struct cn_valkey_listed *listed = &vs->listed[vs->next_listed++];

            if (!listed->prefix.ptr)
                continue;
            *key = listed->id;
            *prefix = listed->prefix;
            return 0;
        }
        if (vs->n_listed && vs->listed_all)
            return 0;
        if (vs->n_listed)
            after = vs->listed[vs->n_listed - 1].id;
        if ((rc = read_page(vs, after, err ? err : &own)) != 0) {
            vs->n_listed = vs->next_listed = 0;
            return rc;
        }
        if (vs->n_listed == 0)
            return 0;
    }
}

struct counting {
    uint64_t n;
    bool failed;
};

static void
on_count(void *ctx, uint32_t i, const redisReply *reply)
{
    struct counting *counting = ctx;

    (void)i;
    if (reply->type == REDIS_REPLY_INTEGER)
        counting->n += (uint64_t)reply->integer;
    else
        counting->failed = true;
}

uint64_t
cn_valkey_count(struct cn_store *store)
{
    struct cn_valkey_store *vs = cn_valkey_of(store);
    struct counting counting = {0};
    struct cn_error err;

    if (!cn_valkey_link_connected(&vs->link) ||
        (vs->counted_ms && cn_now_ms() - vs->counted_ms < COUNT_EVERY_MS))
        return vs->count;
    for (unsigned bucket = 0; bucket < CN_VALKEY_BUCKETS; bucket++) {
        cn_valkey_command(&vs->link, bucket, 2);
        cn_valkey_word(&vs->link, CN_STR("ZCARD"));
        cn_valkey_key_word(vs, bucket, CN_VALKEY_INDEX);
    }
    if (cn_valkey_trip(vs, false, on_count, &counting, cn_valkey_deadline_us(&vs->link), &err) ==
            0 &&
        !counting.failed)
        vs->count = counting.n;
    vs->counted_ms = cn_now_ms();
    return vs->count;
}
