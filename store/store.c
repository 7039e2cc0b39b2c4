/* store/store.c - the public functions of a store: the checks that all kinds share, then the call
 * of the kind's own function. Owned by the worker's thread.
 *
 * A kind of store may leave out prefix, replace, holds, prefetch and work_off; the functions here
 * say what happens then, so that callers need not know the kind. */
#include "store/store.h"

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/memory/prefetch.h"

void
cn_store_close(struct cn_store *store)
{
    if (store)
        store->ops->close(store);
}

int
cn_store_begin(struct cn_store *store, enum cn_store_txn kind, struct cn_error *err)
{
    return store->ops->begin(store, kind, err);
}

/* Keys come from clients, but the front end and the frames have checked their length already, so
 * another length here is a bug of ours. */
static void
key_check(struct cn_str key)
{
    cn_assert(key.len >= 1 && key.len <= CN_STORE_KEY_MAX);
}

int
cn_store_get(struct cn_store *store, struct cn_str key, struct cn_str *out, struct cn_error *err)
{
    key_check(key);
    return store->ops->get(store, key, out, err);
}

void
cn_store_prefetch(struct cn_store *store, const struct cn_str *keys,
                  const struct cn_store_hint *const *hints, uint32_t n)
{
    cn_assert(n <= CN_PREFETCH_MAX);
    if (store->ops->prefetch)
        store->ops->prefetch(store, keys, hints, n);
}

int
cn_store_prefix(struct cn_store *store, struct cn_str key, struct cn_str *out, struct cn_error *err)
{
    key_check(key);
    return (store->ops->prefix ? store->ops->prefix : store->ops->get)(store, key, out, err);
}

int
cn_store_next(struct cn_store *store, struct cn_str after, struct cn_str *key,
              struct cn_str *prefix, struct cn_error *err)
{
    cn_assert(after.len <= CN_STORE_KEY_MAX);
    return store->ops->next(store, after, key, prefix, err);
}

int
cn_store_put(struct cn_store *store, struct cn_str key, struct cn_str value, struct cn_error *err)
{
    key_check(key);
    return store->ops->put(store, key, value, err);
}

int
cn_store_replace(struct cn_store *store, struct cn_str key, struct cn_str value,
                 struct cn_store_hint *hint, struct cn_error *err)
{
    key_check(key);
    if (store->ops->replace)
        return store->ops->replace(store, key, value, hint, err);
    return store->ops->put(store, key, value, err);
}

bool
cn_store_holds(struct cn_store *store, const struct cn_store_hint *hint)
{
    return hint->txn != 0 && store->ops->holds && store->ops->holds(store, hint);
}

int
cn_store_remove(struct cn_store *store, struct cn_str key, struct cn_error *err)
{
    key_check(key);
    return store->ops->remove(store, key, err);
}

bool
cn_store_is_shared(const struct cn_store *store)
{
    return store->ops->expect != NULL;
}

void
cn_store_expect(struct cn_store *store, const struct cn_store_seen *seen,
                enum cn_store_outcome *outcome)
{
    if (store->ops->expect)
        store->ops->expect(store, seen, outcome);
}

int
cn_store_due(struct cn_store *store, uint64_t now_wall_ms, struct cn_store_due *out, uint32_t max,
             uint32_t *n, struct cn_error *err)
{
    return store->ops->due(store, now_wall_ms, out, max, n, err);
}

void
cn_store_later(struct cn_store *store, struct cn_str key, uint64_t at_wall_ms)
{
    store->ops->later(store, key, at_wall_ms);
}

const struct cn_store_activity *
cn_store_activity(struct cn_store *store)
{
    return store->ops->activity ? store->ops->activity(store) : NULL;
}

int
cn_store_commit(struct cn_store *store, struct cn_error *err)
{
    return store->ops->commit(store, err);
}

void
cn_store_send(struct cn_store *store)
{
    store->ops->send(store);
}

bool
cn_store_decided(struct cn_store *store)
{
    return store->ops->decided(store);
}

uint32_t
cn_store_watch(struct cn_store *store, struct pollfd *watched, uint32_t max)
{
    return store->ops->watch(store, watched, max);
}

void
cn_store_abort(struct cn_store *store)
{
    store->ops->abort(store);
}

uint64_t
cn_store_count(struct cn_store *store)
{
    return store->ops->count(store);
}

uint64_t
cn_store_bytes(struct cn_store *store)
{
    return store->ops->bytes(store);
}

unsigned
cn_store_maintain(struct cn_store *store)
{
    return store->ops->maintain(store);
}

void
cn_store_work_off(struct cn_store *store)
{
    if (store->ops->work_off)
        store->ops->work_off(store);
}
