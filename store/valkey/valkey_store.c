/* store/valkey/valkey_store.c - the store that several nodes share: opening it, reading, and
 * collecting a transaction's writes. Worker's thread.
 *
 * A transaction locks nothing. A read asks the server, and what it gave is kept until the
 * transaction ends, because the caller borrows it and because a write needs it as its condition.
 * Writes are collected and sent by the commit (valkey_commit.c). */
#include "store/shared_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/containers/list.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/memory/prefetch.h"
#include "core/system/random.h"
#include "core/time/clock.h"
#include "store/record/little_endian.h"
#include "store/record/record.h"
#include "store/valkey/valkey_priv.h"

#define ATTEMPTS 3 /* how often a read is sent again on a new connection */

struct cn_valkey_store *
cn_valkey_of(struct cn_store *store)
{
    return cn_container_of(store, struct cn_valkey_store, base);
}

/* --- keys */

/* Makes what all keys begin with, and the places of the buckets. Names may have any bytes; those
 * that mean something in a key are written as %XX. */
static void
make_head(struct cn_valkey_store *vs)
{
    char key[16];
    const char *const parts[] = {vs->link.options.prefix, vs->link.options.model,
                                 vs->link.options.version};

    cn_buf_puts(&vs->head, "{");
    for (size_t i = 0; i < 3; i++) {
        for (const char *c = parts[i]; *c; c++) {
            if (strchr("{}/%", *c))
                cn_buf_printf(&vs->head, "%%%02X", (unsigned)*c);
            else
                cn_buf_append(&vs->head, c, 1);
        }
        cn_buf_puts(&vs->head, "/");
    }
    for (unsigned bucket = 0; bucket < CN_VALKEY_BUCKETS; bucket++) {
        const size_t len = vs->head.len;

        snprintf(key, sizeof(key), "%02x}", bucket);
        cn_buf_puts(&vs->head, key);
        cn_valkey_link_add_place(&vs->link, cn_buf_str(&vs->head));
        vs->head.len = len;
    }
}

/* --- reading */

static struct cn_valkey_read *
add_read(struct cn_valkey_store *vs, struct cn_str key)
{
    if (vs->n_reads == vs->cap_reads) {
        vs->cap_reads = vs->cap_reads ? vs->cap_reads * 2 : 64;
        vs->reads = cn_try_realloc(vs->reads, vs->cap_reads * sizeof(*vs->reads));
        if (!vs->reads)
            cn_panic(__FILE__, __LINE__, "not enough memory for a batch's reads");
    }
    vs->reads[vs->n_reads] = (struct cn_valkey_read){.key = cn_arena_str(&vs->arena, key)};
    return &vs->reads[vs->n_reads++];
}

/* Looks for what was read. Callers mostly ask in the order in which it was prefetched. */
static struct cn_valkey_read *
find_read(struct cn_valkey_store *vs, struct cn_str key)
{
    for (uint32_t n = 0; n < vs->n_reads; n++) {
        const uint32_t i = (vs->next_read + n) % vs->n_reads;

        if (!cn_str_eq(vs->reads[i].key, key))
            continue;
        vs->next_read = (i + 1) % vs->n_reads;
        return &vs->reads[i];
    }
    return NULL;
}

/* One round trip of reads. */
struct reading {
    struct cn_valkey_store *vs;
    uint32_t *asked; /* in the arena: the reads that it makes, by their index */
    uint32_t n;
    int passing; /* an error that another attempt may heal */
};

static void
fail_read(struct cn_valkey_read *read, int rc, const struct cn_error *err)
{
    read->rc = rc;
    snprintf(read->why, sizeof(read->why), "%.255s", err->message);
}

static void
on_value(void *ctx, uint32_t i, const redisReply *reply)
{
    struct reading *reading = ctx;
    struct cn_valkey_store *vs = reading->vs;
    struct cn_valkey_read *read = &vs->reads[reading->asked[i]];
    struct cn_str entry;
    struct cn_error err;
    char *copy;

    /* An earlier attempt may have read a record from a primary that was replaced since. */
    read->rc = 0;
    read->value = (struct cn_str){NULL, 0};
    read->seen = (struct cn_store_seen){0};
    read->done = true;
    if (reply->type == REDIS_REPLY_NIL)
        return;
    if (reply->type != REDIS_REPLY_STRING) {
        fail_read(read, cn_valkey_fail_reply(vs, reply, &err), &err);
        if (read->rc == CN_E_STORE_UNREACHABLE)
            reading->passing = read->rc;
        read->done = read->rc != CN_E_STORE_UNREACHABLE;
        return;
    }
    copy = cn_arena_try_alloc(&vs->arena, (size_t)reply->len + 1);
    if (!copy) {
        cn_fail(&err, CN_E_OUT_OF_MEMORY, "not enough memory for a state of %zu bytes",
                (size_t)reply->len);
        fail_read(read, CN_E_OUT_OF_MEMORY, &err);
        return;
    }
    memcpy(copy, reply->str, (size_t)reply->len);
    entry = (struct cn_str){copy, (size_t)reply->len};
    if (cn_valkey_take_stamp(entry, &read->seen, &read->value, &err) != 0)
        fail_read(read, err.code, &err);
}

/* Asks for what is not read yet. Returns an error if there are reads that got no answer. */
static int
read_once(struct reading *reading, uint64_t deadline_us, struct cn_error *err)
{
    struct cn_valkey_store *vs = reading->vs;
    int rc;

    reading->n = 0;
    reading->passing = 0;
    for (uint32_t i = vs->n_filled; i < vs->n_reads; i++) {
        const unsigned bucket = cn_valkey_bucket(vs->reads[i].key);

        if (vs->reads[i].done)
            continue;
        reading->asked[reading->n++] = i;
        cn_valkey_command(&vs->link, bucket, 2);
        cn_valkey_word(&vs->link, CN_STR("GET"));
        cn_valkey_entry_word(vs, bucket, vs->reads[i].key);
    }
    rc = cn_valkey_trip(vs, true, on_value, reading, deadline_us, err);
    for (uint32_t i = 0; i < reading->n && rc != 0; i++) {
        if (cn_valkey_result_of(&vs->link, i) == CN_COMMAND_DONE)
            continue;
        fail_read(&vs->reads[reading->asked[i]], rc, err);
        vs->reads[reading->asked[i]].done = false;
    }
    return rc;
}

/* Reads the entries that were noted and are not read yet, in one round trip. With state.replicas,
 * what is read must be on the replicas, too: an answer that is given from a record is as good as
 * that of the step that wrote it, also if that step was refused because no replica confirmed it.
 * And an old primary that does not know yet that it was replaced no longer has replicas, so its
 * records are not used. The same holds for the primary's disk, if the steps wait for it. Each read
 * that has failed has its own error. */
static int
fill_reads(struct cn_valkey_store *vs, struct cn_error *err)
{
    const uint64_t deadline_us = cn_valkey_deadline_us(&vs->link);
    struct reading reading = {.vs = vs};
    int rc;

    reading.asked =
        cn_arena_alloc(&vs->arena, (vs->n_reads - vs->n_filled) * sizeof(*reading.asked));
    for (int attempt = 1;; attempt++) {
        if ((rc = cn_valkey_ready(vs, deadline_us, err)) != 0)
            return rc;
        rc = read_once(&reading, deadline_us, err);
        if ((rc == 0 && !reading.passing) || attempt == ATTEMPTS || cn_now_us() >= deadline_us ||
            (rc != 0 && !vs->link.may_retry))
            break;
        if (rc == 0) /* another server, or a later attempt, may answer */
            cn_valkey_link_doubt(&vs->link);
    }
    vs->n_filled = vs->n_reads;
    return 0;
}

/* Notes the keys without a hint, because those that have one are in the worker's cache. The first
 * get that needs one of them reads all, so they cost one round trip however many calls noted them.
 */
static void
valkey_prefetch(struct cn_store *store, const struct cn_str *keys,
                const struct cn_store_hint *const *hints, uint32_t n)
{
    struct cn_valkey_store *vs = cn_valkey_of(store);

    for (uint32_t i = 0; i < n; i++)
        if (!hints[i])
            add_read(vs, keys[i]);
}

static void
forget_transaction(struct cn_valkey_store *vs)
{
    vs->open = vs->writing = vs->away.sent = false;
    vs->n_reads = vs->n_filled = vs->next_read = vs->n_writes = 0;
    vs->n_listed = vs->next_listed = 0;
    vs->listed_all = false;
    vs->expected.given = false;
    vs->expected.tell = NULL;
    cn_buf_reset(&vs->values);
    cn_arena_clear(&vs->arena);
}

static int
valkey_begin(struct cn_store *store, enum cn_store_txn kind, struct cn_error *err)
{
    struct cn_valkey_store *vs = cn_valkey_of(store);
    struct cn_error own;
    int rc;

    cn_assert(!vs->open);
    if (kind == CN_STORE_WRITE)
        forget_transaction(vs); /* what was prefetched is for reading */
    /* A store beside another one only sends, and cn_valkey_send looks at the connection. */
    rc = kind == CN_STORE_WRITE && vs->activity != &vs->own
             ? 0
             : cn_valkey_ready(vs, cn_valkey_deadline_us(&vs->link), err ? err : &own);
    vs->open = rc == 0;
    vs->writing = kind == CN_STORE_WRITE;
    return rc;
}

static void
valkey_abort(struct cn_store *store)
{
    forget_transaction(cn_valkey_of(store));
}

static struct cn_valkey_write *
find_write(struct cn_valkey_store *vs, struct cn_str key)
{
    for (uint32_t i = 0; i < vs->n_writes; i++)
        if (cn_str_eq(vs->writes[i].key, key))
            return &vs->writes[i];
    return NULL;
}

static int
valkey_get(struct cn_store *store, struct cn_str key, struct cn_str *out, struct cn_error *err)
{
    struct cn_valkey_store *vs = cn_valkey_of(store);
    const struct cn_valkey_write *written = find_write(vs, key);
    struct cn_valkey_read *read;
    struct cn_error own;
    int rc;

    cn_assert(vs->open);
    *out = (struct cn_str){NULL, 0};
    if (written) {
        if (written->len)
            *out = (struct cn_str){vs->values.data + written->at + CN_VALKEY_STAMP_BYTES,
                                   written->len - CN_VALKEY_STAMP_BYTES};
        return 0;
    }
    read = find_read(vs, key);
    if (!read)
        read = add_read(vs, key);
    if (read >= vs->reads + vs->n_filled && (rc = fill_reads(vs, err ? err : &own)) != 0) {
        vs->n_reads = vs->n_filled;
        return rc;
    }
    if (read->rc != 0)
        return cn_fail(err, read->rc, "%s", read->why);
    *out = read->value;
    return 0;
}

/* --- writing */

static void
valkey_expect(struct cn_store *store, const struct cn_store_seen *seen,
              enum cn_store_outcome *outcome)
{
    struct cn_valkey_store *vs = cn_valkey_of(store);

    vs->expected.given = seen != NULL;
    if (seen)
        vs->expected.seen = *seen;
    vs->expected.tell = outcome;
}

/* What the transaction has read under the key is the write's condition, unless the caller gave
 * one. */
static struct cn_store_seen
condition(struct cn_valkey_store *vs, struct cn_str key)
{
    const struct cn_valkey_read *read;

    if (vs->expected.given)
        return vs->expected.seen;
    read = find_read(vs, key);
    if (!read || read->rc != 0)
        return (struct cn_store_seen){.what = CN_SEEN_ANYTHING};
    return read->seen; /* zeroed, CN_SEEN_NOTHING, if there was no such key */
}

/* Returns the key's write, which is a new one unless the transaction has written the key before. */
static struct cn_valkey_write *
add_write(struct cn_valkey_store *vs, struct cn_str key)
{
    struct cn_valkey_write *write = vs->expected.given ? NULL : find_write(vs, key);

    if (!write) {
        if (vs->n_writes == vs->cap_writes) {
            vs->cap_writes = vs->cap_writes ? vs->cap_writes * 2 : 64;
            vs->writes = cn_try_realloc(vs->writes, vs->cap_writes * sizeof(*vs->writes));
            if (!vs->writes)
                cn_panic(__FILE__, __LINE__, "not enough memory for a batch's writes");
        }
        write = &vs->writes[vs->n_writes++];
        *write = (struct cn_valkey_write){.key = cn_arena_str(&vs->arena, key),
                                          .bucket = cn_valkey_bucket(key),
                                          .seen = condition(vs, key)};
    }
    write->number = vs->next_number++;
    write->tell = vs->expected.tell;
    write->len = 0;
    vs->expected.given = false;
    vs->expected.tell = NULL;
    return write;
}

/* When the sweeper is to look at the entry: when it expires, and at least once a day, because the
 * model's limits may change. */
static uint64_t
look_at(const struct cn_record *record)
{
    const uint64_t latest = cn_wall_ms() + CN_VALKEY_LOOK_MS;

    return record->expires_wall_ms && record->expires_wall_ms < latest ? record->expires_wall_ms
                                                                       : latest;
}

static int
valkey_put(struct cn_store *store, struct cn_str key, struct cn_str value, struct cn_error *err)
{
    struct cn_valkey_store *vs = cn_valkey_of(store);
    struct cn_valkey_write *write;
    struct cn_record record;
    unsigned char stamp[CN_VALKEY_STAMP_BYTES] = {CN_VALKEY_LAYOUT};

    cn_assert(vs->open && vs->writing);
    if (cn_record_peek(value, &record, err) != 0)
        return CN_E_STATE_STORE;
    write = add_write(vs, key);
    stamp[1] = record.flags & CN_RECORD_TOMBSTONE ? CN_VALKEY_TOMBSTONE : 0;
    put64(stamp + 2, record.generation);
    put64(stamp + 10, record.step);
    put64(stamp + 18, record.last_job);
    put64(stamp + 26, write->number);
    write->at = vs->values.len;
    write->len = sizeof(stamp) + value.len;
    write->tombstone = record.flags & CN_RECORD_TOMBSTONE;
    write->look_at_ms = look_at(&record);
    write->may_remove = (record.flags & CN_RECORD_TOMBSTONE) && !(record.flags & CN_RECORD_ASKED);
    cn_buf_append(&vs->values, stamp, sizeof(stamp));
    if (cn_buf_append_str(&vs->values, value) < 0)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory to commit a batch");
    return 0;
}

static int
valkey_remove(struct cn_store *store, struct cn_str key, struct cn_error *err)
{
    struct cn_valkey_store *vs = cn_valkey_of(store);

    (void)err;
    cn_assert(vs->open && vs->writing);
    add_write(vs, key);
    return 0;
}

static int
valkey_commit(struct cn_store *store, struct cn_error *err)
{
    struct cn_error own;
    int rc = cn_valkey_commit(store, err ? err : &own);

    forget_transaction(cn_valkey_of(store));
    return rc;
}

/* --- the rest */

/* The server knows only what all of its keys take together, so there is no figure for a model. */
static uint64_t
valkey_bytes(struct cn_store *store)
{
    (void)store;
    return 0;
}

static unsigned
valkey_maintain(struct cn_store *store)
{
    (void)store;
    return 0;
}

/* Between batches: forgets what was prefetched and not read. */
static void
valkey_work_off(struct cn_store *store)
{
    if (!cn_valkey_of(store)->open)
        forget_transaction(cn_valkey_of(store));
}

static void
valkey_close(struct cn_store *store)
{
    struct cn_valkey_store *vs = cn_valkey_of(store);

    cn_valkey_link_fini(&vs->link);
    cn_buf_fini(&vs->head);
    cn_buf_fini(&vs->values);
    cn_arena_fini(&vs->arena);
    cn_free(vs->reads);
    cn_free(vs->writes);
    cn_free(vs->sweep.later);
    cn_free(vs);
}

static const struct cn_store_activity *
valkey_activity(struct cn_store *store)
{
    return cn_valkey_note(cn_valkey_of(store), 0, NULL);
}

static const struct cn_store_ops valkey_ops = {
    .name = "valkey",
    .close = valkey_close,
    .begin = valkey_begin,
    .get = valkey_get,
    .next = cn_valkey_next,
    .put = valkey_put,
    .remove = valkey_remove,
    .commit = valkey_commit,
    .send = cn_valkey_send,
    .decided = cn_valkey_decided,
    .watch = cn_valkey_watch,
    .abort = valkey_abort,
    .count = cn_valkey_count,
    .bytes = valkey_bytes,
    .maintain = valkey_maintain,
    .work_off = valkey_work_off,
    .prefetch = valkey_prefetch,
    .expect = valkey_expect,
    .activity = valkey_activity,
    .due = cn_valkey_due,
    .later = cn_valkey_later,
};

int
cn_shared_store_open(const struct cn_shared_options *options, struct cn_store **out,
                     struct cn_error *err)
{
    struct cn_valkey_store *vs = cn_alloc(sizeof(*vs));
    struct cn_error own;
    int rc;

    *out = NULL;
    err = err ? err : &own;
    vs->base.ops = &valkey_ops;
    cn_buf_init(&vs->head, 0);
    cn_buf_init(&vs->values, 0);
    cn_arena_init(&vs->arena);
    vs->next_number = cn_random_u64();
    vs->sweep.owner = cn_random_u64();
    vs->unconditional = getenv("CONTINUO_TEST_UNCONDITIONAL") != NULL;
    vs->activity = options->beside ? cn_valkey_of(options->beside)->activity : &vs->own;
    rc = cn_valkey_link_init(&vs->link, options, cn_valkey_script, err);
    make_head(vs);
    if (rc == 0 && !options->beside)
        rc = cn_valkey_check_layout(vs, err);
    if (rc != 0) {
        valkey_close(&vs->base);
        return rc;
    }
    *out = &vs->base;
    return 0;
}
