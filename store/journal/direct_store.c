/* store/journal/direct_store.c - the store of a model with state.journal: off: each commit is a
 * transaction of LMDB, which is as durable as the model asks for. Owned by the worker's thread.
 *
 * The files are those of a store with a journal. When the store was opened, what the journal had
 * was moved to LMDB (cn_journal_empty), and since all processes that have the store open do without
 * a journal (cn_journal_choose), it stays empty. So the functions here only pass on to LMDB.
 *
 * A key without a value in LMDB is the mark of a sequence that damage has destroyed, as everywhere:
 * reading it is an error, writing it replaces the mark, and a scan leaves it out. */
#include "store/journal/journal_priv.h"

static struct cn_store *
below(struct cn_store *store)
{
    return cn_journal_of(store)->lmdb;
}

static int
direct_begin(struct cn_store *store, enum cn_store_txn kind, struct cn_error *err)
{
    return below(store)->ops->begin(below(store), kind, err);
}

static int
direct_get(struct cn_store *store, struct cn_str key, struct cn_str *out, struct cn_error *err)
{
    int rc = below(store)->ops->get(below(store), key, out, err);

    return rc ? rc : cn_journal_check_lost(cn_journal_of(store), *out, err);
}

static int
direct_prefix(struct cn_store *store, struct cn_str key, struct cn_str *out, struct cn_error *err)
{
    int rc = below(store)->ops->prefix(below(store), key, out, err);

    return rc ? rc : cn_journal_check_lost(cn_journal_of(store), *out, err);
}

static int
direct_next(struct cn_store *store, struct cn_str after, struct cn_str *key, struct cn_str *prefix,
            struct cn_error *err)
{
    int rc;

    while ((rc = below(store)->ops->next(below(store), after, key, prefix, err)) == 0 && key->ptr &&
           prefix->len == 0)
        after = *key; /* borrowed from LMDB's pages, where it stays during the transaction */
    return rc;
}

static int
direct_put(struct cn_store *store, struct cn_str key, struct cn_str value, struct cn_error *err)
{
    return below(store)->ops->put(below(store), key, value, err);
}

static int
direct_remove(struct cn_store *store, struct cn_str key, struct cn_error *err)
{
    return below(store)->ops->remove(below(store), key, err);
}

static int
direct_commit(struct cn_store *store, struct cn_error *err)
{
    return below(store)->ops->commit(below(store), err);
}

static void
direct_abort(struct cn_store *store)
{
    below(store)->ops->abort(below(store));
}

static uint64_t
direct_count(struct cn_store *store)
{
    return below(store)->ops->count(below(store));
}

static uint64_t
direct_bytes(struct cn_store *store)
{
    return below(store)->ops->bytes(below(store));
}

static unsigned
direct_maintain(struct cn_store *store)
{
    return below(store)->ops->maintain(below(store));
}

const struct cn_store_ops cn_direct_store_ops = {
    .name = "direct",
    .close = cn_journal_close,
    .begin = direct_begin,
    .get = direct_get,
    .prefix = direct_prefix,
    .next = direct_next,
    .put = direct_put,
    .remove = direct_remove,
    .commit = direct_commit,
    .abort = direct_abort,
    .count = direct_count,
    .bytes = direct_bytes,
    .maintain = direct_maintain,
};
