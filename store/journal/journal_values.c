/* store/journal/journal_values.c - reads and writes values of the journal store. Owned by the
 * worker's thread.
 *
 * A key's newest value is looked for in four places, in this order: the open transaction, the newer
 * journal file, the older one, and LMDB. The first that has an entry of the key decides. An entry
 * with CN_JOURNAL_REMOVED hides what the places behind it have.
 *
 * LMDB lists every key, also those whose value is in the journal only, with a value of no bytes. So
 * a scan walks through LMDB's keys and takes each value from the journal if it has a newer one. A
 * key without bytes in LMDB and without an entry in the journal is a lost sequence after damage:
 * reading it fails with CN_E_STATE_DAMAGED, and a scan leaves it out. In a suspect store this holds
 * for each key without an entry in the journal, whatever LMDB has: by an old value a sequence might
 * be taken for one that has expired.
 *
 * A write goes to the open transaction's buffer and touches LMDB only if the key is new or removed.
 * It has to know how large the old value is and what LMDB holds of it, because the limit
 * (state.storeMaxBytes) counts the bytes by which LMDB will grow when the journal is drained. A
 * hint of the value's owner says so (journal_hint.c); without a valid one the old value is looked
 * up. In debug builds each hint that is used is compared with a look-up. */
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/memory/prefetch.h"
#include "store/journal/journal_priv.h"

#define FIRST_PUTS 64u

/* Where the newest entry of a key is in the journal; `out` gets the entry. */
static enum cn_journal_place
find(struct cn_journal_store *js, struct cn_str key, uint32_t hash, struct cn_journal_entry *out)
{
    const struct cn_journal_file *cur = cn_journal_cur(js), *old = cn_journal_old(js);
    uint64_t at;

    if ((at = cn_journal_index_find(&js->pending, js->txn.data, hash, key)) != 0) {
        cn_journal_entry_at(js->txn.data + at, out);
        return CN_JOURNAL_IN_TXN;
    }
    if ((at = cn_journal_index_find(&cur->index, cur->map, hash, key)) != 0) {
        cn_journal_entry_at(cur->map + at, out);
        return CN_JOURNAL_IN_CUR;
    }
    if ((at = cn_journal_index_find(&old->index, old->map, hash, key)) != 0) {
        cn_journal_entry_at(old->map + at, out);
        return CN_JOURNAL_IN_OLD;
    }
    return CN_JOURNAL_IN_LMDB;
}

bool
cn_journal_has(struct cn_journal_store *js, struct cn_str key)
{
    struct cn_journal_entry entry;

    return find(js, key, cn_journal_hash(key), &entry) != CN_JOURNAL_IN_LMDB;
}

/* A value with a valid hint needs only its slot in the index; others need the slots and entries of
 * both files. */
void
cn_journal_prefetch(struct cn_store *store, const struct cn_str *keys,
                    const struct cn_store_hint *const *hints, uint32_t n)
{
    struct cn_journal_store *js = cn_journal_of(store);
    uint32_t hashes[CN_PREFETCH_MAX], n_hashes = 0;

    if (!cn_tuned(CN_TUNING_PREFETCH))
        return;
    for (uint32_t i = 0; i < n; i++) {
        if (hints[i] && hints[i]->txn && cn_journal_hint_holds(js, hints[i])) {
            cn_journal_index_prefetch(&cn_journal_cur(js)->index, hints[i]->hash);
            continue;
        }
        hashes[n_hashes] = cn_journal_hash(keys[i]);
        for (unsigned f = 0; f < 2; f++)
            cn_journal_index_prefetch(&js->files[f].index, hashes[n_hashes]);
        n_hashes++;
    }
    for (uint32_t i = 0; i < n_hashes; i++)
        for (unsigned f = 0; f < 2; f++)
            cn_journal_index_prefetch_entry(&js->files[f].index, js->files[f].map, hashes[i],
                                            CN_STORE_PREFETCH_BYTES);
}

int
cn_journal_check_lost(const struct cn_journal_store *js, struct cn_str value, struct cn_error *err)
{
    if (js->suspect)
        return cn_fail(
            err, CN_E_STATE_DAMAGED,
            "its state may be lost, because files of the store %s were lost or replaced; start the "
            "sequence anew (start flag), or accept the loss (continuo-ctl store accept)",
            js->dir);
    if (value.ptr && value.len == 0)
        return cn_fail(err, CN_E_STATE_DAMAGED,
                       "its state is lost, because the store %s was damaged; start the sequence "
                       "anew (start flag), or accept the loss (continuo-ctl store accept)",
                       js->dir);
    return 0;
}

/* Reads from the journal or, with the function `below`, from LMDB. */
static int
get_by(struct cn_store *store, struct cn_str key, struct cn_str *out, struct cn_error *err,
       int (*below)(struct cn_store *, struct cn_str, struct cn_str *, struct cn_error *))
{
    struct cn_journal_store *js = cn_journal_of(store);
    struct cn_journal_entry entry;
    int rc;

    cn_assert(js->open);
    if (find(js, key, cn_journal_hash(key), &entry) != CN_JOURNAL_IN_LMDB) {
        *out = entry.flags & CN_JOURNAL_REMOVED ? (struct cn_str){NULL, 0} : entry.value;
        return 0;
    }
    rc = below(js->lmdb, key, out, err);
    return rc ? rc : cn_journal_check_lost(js, *out, err);
}

int
cn_journal_get(struct cn_store *store, struct cn_str key, struct cn_str *out, struct cn_error *err)
{
    return get_by(store, key, out, err, cn_journal_of(store)->lmdb->ops->get);
}

int
cn_journal_prefix(struct cn_store *store, struct cn_str key, struct cn_str *out,
                  struct cn_error *err)
{
    return get_by(store, key, out, err, cn_journal_of(store)->lmdb->ops->prefix);
}

int
cn_journal_next(struct cn_store *store, struct cn_str after, struct cn_str *key,
                struct cn_str *prefix, struct cn_error *err)
{
    struct cn_journal_store *js = cn_journal_of(store);
    struct cn_journal_entry entry;
    int rc;

    cn_assert(js->open);
    while ((rc = js->lmdb->ops->next(js->lmdb, after, key, prefix, err)) == 0 && key->ptr) {
        bool newer = find(js, *key, cn_journal_hash(*key), &entry) != CN_JOURNAL_IN_LMDB;

        if (newer && !(entry.flags & CN_JOURNAL_REMOVED)) {
            *prefix = entry.value;
            return 0;
        }
        if (!newer && prefix->len > 0 && !js->suspect)
            return 0;
        after = *key; /* borrowed from LMDB's pages, where it stays during the transaction */
    }
    return rc;
}

/* --- writing --- */

/* Adds an entry to the open transaction. `was` is the hint about the value that it replaces, or
 * NULL. Returns the entry's offset in the transaction. */
static uint64_t
add(struct cn_journal_store *js, uint32_t hash, const struct cn_journal_entry *entry,
    const struct cn_store_hint *was)
{
    uint64_t at = js->txn.len;

    if (js->n_puts == js->cap_puts) {
        uint32_t cap = js->cap_puts ? js->cap_puts * 2 : FIRST_PUTS;
        struct cn_journal_put *puts = cn_try_realloc(js->puts, cap * sizeof(*puts));

        if (!puts) {
            js->txn.failed = true; /* the commit fails with this reason */
            return at;
        }
        js->puts = puts;
        js->cap_puts = cap;
    }
    cn_journal_add(&js->txn, entry);
    if (js->txn.failed)
        return at;
    cn_journal_index_set(&js->pending, js->txn.data, hash, entry->key, at);
    js->puts[js->n_puts] = (struct cn_journal_put){.at = at, .hash = hash};
    if (was)
        js->puts[js->n_puts].was = *was;
    js->n_puts++;
    return at;
}

/* The value of an entry's `stored`: what a value of this size takes in LMDB. */
static uint32_t
stored_cost(uint64_t value_bytes)
{
    uint64_t cost = cn_lmdb_cost(value_bytes);

    return cost < UINT32_MAX ? (uint32_t)cost : UINT32_MAX;
}

/* Looks up what a write replaces. `bytes` gets the size of the old value, `was->stored` the room
 * that LMDB's value of the key takes, and `listed` whether LMDB has the key. */
static int
look_up(struct cn_journal_store *js, struct cn_str key, uint32_t hash, struct cn_journal_entry *was,
        uint64_t *bytes, bool *listed, struct cn_error *err)
{
    enum cn_journal_place place = find(js, key, hash, was);
    struct cn_str prefix;
    int rc;

    *listed = true;
    if (place != CN_JOURNAL_IN_LMDB && !(was->flags & CN_JOURNAL_REMOVED)) {
        *bytes = was->value.len;
        if (place == CN_JOURNAL_IN_OLD && cn_journal_is_drained(js, key))
            was->stored = stored_cost(*bytes);
        return 0;
    }
    if ((rc = js->lmdb->ops->prefix(js->lmdb, key, &prefix, err)) != 0 ||
        (rc = cn_lmdb_bytes_of(js->lmdb, key, prefix, bytes, err)) != 0)
        return rc;
    *listed = prefix.ptr != NULL;
    was->stored = *listed ? stored_cost(*bytes) : 0;
    return 0;
}

#ifdef CN_DEBUG
static void
check_recalled(struct cn_journal_store *js, struct cn_str key, uint32_t hash,
               const struct cn_journal_entry *was, uint64_t bytes)
{
    struct cn_journal_entry found = {.stored = 0};
    uint64_t found_bytes;
    bool listed;

    cn_assert(look_up(js, key, hash, &found, &found_bytes, &listed, NULL) != 0 ||
              (listed && found_bytes == bytes && found.stored == was->stored));
}
#endif

/* Gets the same from a hint, without a look-up. False: the hint is empty or not valid. */
static bool
recall(struct cn_journal_store *js, struct cn_str key, const struct cn_store_hint *hint,
       struct cn_journal_entry *was, uint64_t *bytes)
{
    /* If the open transaction wrote the key already, somebody had a second hint of it, against the
     * rule of cn_store_replace; then the value is looked up. */
    if (hint->txn == 0 || !cn_journal_hint_holds(js, hint) ||
        cn_journal_index_find(&js->pending, js->txn.data, hint->hash, key) != 0)
        return false;
    *bytes = hint->bytes;
    was->stored = cn_journal_hint_place(js, key, hint) == CN_JOURNAL_IN_LMDB
                      ? stored_cost(hint->bytes)
                      : hint->stored;
#ifdef CN_DEBUG
    check_recalled(js, key, hint->hash, was, *bytes);
#endif
    return true;
}

/* Writes a value. `hint` is NULL if the value's owner has none. */
static int
put(struct cn_journal_store *js, struct cn_str key, struct cn_str value, struct cn_store_hint *hint,
    struct cn_error *err)
{
    const uint32_t hash = hint && hint->txn ? hint->hash : cn_journal_hash(key);
    const struct cn_journal_file *cur = cn_journal_cur(js);
    struct cn_journal_entry entry;
    uint64_t had;
    const bool recalled = hint && recall(js, key, hint, &entry, &had);
    bool listed = true;
    int64_t growth;
    uint64_t at;
    int rc;

    cn_assert(js->open && js->writing && value.len > 0);
    if (!recalled && (rc = look_up(js, key, hash, &entry, &had, &listed, err)) != 0)
        return rc;
    growth = (int64_t)cn_lmdb_cost(value.len) - (had ? (int64_t)cn_lmdb_cost(had) : 0);
    if (value.len > had && growth > 0 &&
        growth > js->room - cn_journal_owed(js) + cn_journal_freed(js) - js->growth) {
        cn_lmdb_fail_full(js->lmdb, err);
        return 1;
    }
    if (!listed) {
        if ((rc = js->lmdb->ops->put(js->lmdb, key, CN_STR(""), err)) != 0)
            return rc;
        js->dirty = true;
    }
    entry.key = key;
    entry.value = value;
    entry.flags = listed ? 0 : CN_JOURNAL_NEW;
    js->growth += growth;
    js->largest = value.len > js->largest ? value.len : js->largest;
    at = cur->tail + add(js, hash, &entry, recalled ? hint : NULL);
    if (!hint)
        cn_journal_hint_stale(js, hash, cur->next);
    else
        *hint = (struct cn_store_hint){value.len <= UINT32_MAX ? cur->next : 0, hash,
                                       (uint32_t)(at / 8), (uint32_t)value.len, entry.stored};
    return 0;
}

int
cn_journal_put(struct cn_store *store, struct cn_str key, struct cn_str value, struct cn_error *err)
{
    return put(cn_journal_of(store), key, value, NULL, err);
}

int
cn_journal_replace(struct cn_store *store, struct cn_str key, struct cn_str value,
                   struct cn_store_hint *hint, struct cn_error *err)
{
    return put(cn_journal_of(store), key, value, hint, err);
}

bool
cn_journal_holds(struct cn_store *store, const struct cn_store_hint *hint)
{
    cn_assert(cn_journal_of(store)->open);
    return cn_journal_hint_holds(cn_journal_of(store), hint);
}

int
cn_journal_remove(struct cn_store *store, struct cn_str key, struct cn_error *err)
{
    struct cn_journal_store *js = cn_journal_of(store);
    uint32_t hash = cn_journal_hash(key);
    struct cn_journal_entry entry;
    uint64_t had;
    bool listed;
    int rc;

    cn_assert(js->open && js->writing);
    if ((rc = look_up(js, key, hash, &entry, &had, &listed, err)) != 0 || !listed)
        return rc;
    if ((rc = js->lmdb->ops->remove(js->lmdb, key, err)) != 0)
        return rc;
    js->dirty = true;
    entry.key = key;
    js->growth -= had ? (int64_t)cn_lmdb_cost(had) : 0;
    entry.value = (struct cn_str){NULL, 0};
    entry.stored = 0; /* LMDB has its room again at once */
    entry.flags = CN_JOURNAL_REMOVED;
    add(js, hash, &entry, NULL);
    cn_journal_hint_stale(js, hash, cn_journal_cur(js)->next);
    return 0;
}
