/* store/memory/memory_store.c - the store of durability `none`: a hash table in the worker's
 * memory. Owned by the worker's thread.
 *
 * A write changes the table at once and notes in an undo list what it replaced. A commit frees the
 * replaced entries, an abort puts them back, newest first. So a read inside the transaction sees
 * its own writes without a second look-up.
 *
 * Entries are also in a list, which gives a scan its order. A new version of an entry takes the
 * place of the old one there, so a scan meets each key once, even if entries change during the
 * scan.
 */
#include "store/store.h"

#include <inttypes.h>
#include <string.h>

#include "core/containers/list.h"
#include "core/containers/table.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"

/* Replaced entries are kept for the next writes, up to this number and size, 1 MiB in all: the
 * records of a model mostly have one size, and malloc is slow for more than 1 KiB. */
#define SPARE_MAX 64
#define SPARE_BYTES_MAX 16384

struct mem_entry {
    struct cn_list link; /* in `entries`, in the order in which the keys came; or in `spare` */
    size_t value_len;
    uint32_t cap; /* the capacity of `bytes`; 0: over SPARE_BYTES_MAX */
    uint16_t key_len;
    char bytes[]; /* the key, then the value */
};

/* The undo note of one write: `added` replaced `removed`. Either may be NULL. */
struct mem_undo {
    struct mem_entry *added, *removed;
};

struct mem_store {
    struct cn_store base;
    struct cn_table *table;
    struct cn_list entries;
    struct mem_undo *undo; /* n_undo notes, the oldest first; the array is kept */
    uint32_t n_undo, cap_undo;
    struct cn_list spare;
    unsigned n_spare;
    uint64_t used_bytes, max_bytes;
    bool open, writing;
};

static struct cn_str
entry_key(const void *item)
{
    const struct mem_entry *entry = item;

    return (struct cn_str){entry->bytes, entry->key_len};
}

static size_t
entry_bytes(const struct mem_entry *entry)
{
    return entry ? sizeof(*entry) + entry->key_len + entry->value_len : 0;
}

static struct mem_store *
mem_of(struct cn_store *store)
{
    return cn_container_of(store, struct mem_store, base);
}

static int
mem_begin(struct cn_store *store, enum cn_store_txn kind, struct cn_error *err)
{
    struct mem_store *mem = mem_of(store);

    (void)err;
    cn_assert(!mem->open);
    mem->open = true;
    mem->writing = kind != CN_STORE_READ;
    return 0;
}

static int
mem_get(struct cn_store *store, struct cn_str key, struct cn_str *out, struct cn_error *err)
{
    struct mem_store *mem = mem_of(store);
    struct mem_entry *entry = cn_table_find(mem->table, key);

    (void)err;
    cn_assert(mem->open);
    *out = entry ? (struct cn_str){entry->bytes + entry->key_len, entry->value_len}
                 : (struct cn_str){NULL, 0};
    return 0;
}

static void
mem_prefetch(struct cn_store *store, const struct cn_str *keys,
             const struct cn_store_hint *const *hints, uint32_t n)
{
    (void)hints;
    cn_table_prefetch(mem_of(store)->table, keys, n, CN_STORE_PREFETCH_BYTES, NULL);
}

static int
mem_next(struct cn_store *store, struct cn_str after, struct cn_str *key, struct cn_str *value,
         struct cn_error *err)
{
    struct mem_store *mem = mem_of(store);
    struct mem_entry *entry = after.len ? cn_table_find(mem->table, after) : NULL;
    struct cn_list *link = entry ? entry->link.next : mem->entries.next;

    (void)err;
    cn_assert(mem->open);
    if (link == &mem->entries) {
        *key = *value = (struct cn_str){NULL, 0};
        return 0;
    }
    entry = cn_container_of(link, struct mem_entry, link);
    *key = entry_key(entry);
    *value = (struct cn_str){entry->bytes + entry->key_len, entry->value_len};
    return 0;
}

/* Returns an entry with room for key and value. Takes a spare one if it has about that size. */
static struct mem_entry *
entry_take(struct mem_store *mem, size_t bytes)
{
    struct mem_entry *entry = NULL;

    if (mem->n_spare) {
        entry = cn_container_of(cn_list_pop_front(&mem->spare), struct mem_entry, link);
        mem->n_spare--;
        if (bytes <= entry->cap && entry->cap <= 2 * bytes)
            return entry;
        cn_free(entry); /* the sizes have changed; soon the spare entries will suit again */
    }
    entry = cn_try_alloc(sizeof(*entry) + bytes);
    if (!entry)
        return NULL;
    cn_list_init(&entry->link);
    entry->cap = bytes <= SPARE_BYTES_MAX ? (uint32_t)bytes : 0;
    return entry;
}

/* Keeps or frees an entry that is not in a list. */
static void
entry_give(struct mem_store *mem, struct mem_entry *entry)
{
    if (!entry || entry->cap == 0 || mem->n_spare == SPARE_MAX) {
        cn_free(entry);
        return;
    }
    cn_list_push_front(&mem->spare, &entry->link);
    mem->n_spare++;
}

/* Puts `added` in the place of `removed` in the list; either may be NULL. So a scan that continues
 * later meets a changed entry once, and not again and again at the end. */
static void
mem_relink(struct mem_store *mem, struct mem_entry *added, struct mem_entry *removed)
{
    if (added) {
        cn_list_push_back(removed ? removed->link.next : &mem->entries, &added->link);
        mem->used_bytes += entry_bytes(added);
    }
    if (removed) {
        cn_list_remove(&removed->link);
        mem->used_bytes -= entry_bytes(removed);
    }
}

/* Notes a write that the table has already, and changes the list. */
static void
mem_note(struct mem_store *mem, struct mem_entry *added, struct mem_entry *removed)
{
    if (mem->n_undo == mem->cap_undo) {
        const uint32_t cap = mem->cap_undo ? 2 * mem->cap_undo : 64;
        struct mem_undo *undo = cn_try_realloc(mem->undo, cap * sizeof(*undo));

        if (!undo)
            cn_panic(__FILE__, __LINE__, "not enough memory for a transaction of %u writes", cap);
        mem->undo = undo;
        mem->cap_undo = cap;
    }
    mem->undo[mem->n_undo++] = (struct mem_undo){added, removed};
    mem_relink(mem, added, removed);
}

/* Restores the table to what it was before `added` took the place of `removed`. `removed` is NULL
 * if there was no such entry. */
static void
mem_put_back(struct mem_store *mem, struct mem_entry *added, struct mem_entry *removed)
{
    if (removed)
        cn_table_put(mem->table, removed);
    else
        cn_table_remove(mem->table, entry_key(added));
}

static int
mem_put(struct cn_store *store, struct cn_str key, struct cn_str value, struct cn_error *err)
{
    struct mem_store *mem = mem_of(store);
    struct mem_entry *entry = entry_take(mem, key.len + value.len), *old;

    cn_assert(mem->open && mem->writing);
    if (!entry)
        return cn_fail(err, CN_E_STATE_STORE, "not enough memory for a record of %zu bytes",
                       value.len);
    entry->key_len = (uint16_t)key.len;
    entry->value_len = value.len;
    memcpy(entry->bytes, key.ptr, key.len);
    if (value.len)
        memcpy(entry->bytes + key.len, value.ptr, value.len);
    /* The table is changed before the limit is checked, because a look-up first would be a second
     * search. */
    old = cn_table_put(mem->table, entry);
    if (entry_bytes(entry) > entry_bytes(old) &&
        mem->used_bytes - entry_bytes(old) + entry_bytes(entry) > mem->max_bytes) {
        mem_put_back(mem, entry, old);
        entry_give(mem, entry);
        cn_fail(err, CN_E_STATE_STORE,
                "the store in memory is full: %" PRIu64 " of %" PRIu64
                " bytes (state.storeMaxBytes); raise the limit, or end sequences (each leaves a "
                "tombstone for sequence.tombstoneMSec)",
                mem->used_bytes, mem->max_bytes);
        return 1;
    }
    mem_note(mem, entry, old);
    return 0;
}

static int
mem_remove(struct cn_store *store, struct cn_str key, struct cn_error *err)
{
    struct mem_store *mem = mem_of(store);
    struct mem_entry *old;

    (void)err;
    cn_assert(mem->open && mem->writing);
    old = cn_table_remove(mem->table, key);
    if (old)
        mem_note(mem, NULL, old);
    return 0;
}

static int
mem_commit(struct cn_store *store, struct cn_error *err)
{
    struct mem_store *mem = mem_of(store);

    (void)err;
    cn_assert(mem->open);
    while (mem->n_undo > 0)
        entry_give(mem, mem->undo[--mem->n_undo].removed);
    mem->open = mem->writing = false;
    return 0;
}

static void
mem_abort(struct cn_store *store)
{
    struct mem_store *mem = mem_of(store);

    while (mem->n_undo > 0) { /* newest first */
        const struct mem_undo *undo = &mem->undo[--mem->n_undo];

        mem_put_back(mem, undo->added, undo->removed);
        mem_relink(mem, undo->removed, undo->added);
        entry_give(mem, undo->added);
    }
    mem->open = mem->writing = false;
}

static uint64_t
mem_count(struct cn_store *store)
{
    return cn_table_count(mem_of(store)->table);
}

static uint64_t
mem_bytes(struct cn_store *store)
{
    return mem_of(store)->used_bytes;
}

static unsigned
mem_maintain(struct cn_store *store)
{
    (void)store; /* no other process reads it */
    return 0;
}

static void
mem_close(struct cn_store *store)
{
    struct mem_store *mem = mem_of(store);
    struct cn_list *link;

    mem_abort(store);
    cn_table_destroy(mem->table);
    cn_free(mem->undo);
    while ((link = cn_list_pop_front(&mem->entries)) != NULL ||
           (link = cn_list_pop_front(&mem->spare)) != NULL)
        cn_free(cn_container_of(link, struct mem_entry, link));
    cn_free(mem);
}

static const struct cn_store_ops mem_ops = {
    .name = "memory",
    .close = mem_close,
    .begin = mem_begin,
    .get = mem_get,
    .next = mem_next,
    .put = mem_put,
    .remove = mem_remove,
    .commit = mem_commit,
    .abort = mem_abort,
    .count = mem_count,
    .bytes = mem_bytes,
    .maintain = mem_maintain,
    .prefetch = mem_prefetch,
};

struct cn_store *
cn_mem_store_open(uint64_t max_bytes)
{
    struct mem_store *mem = cn_alloc(sizeof(*mem));

    mem->base.ops = &mem_ops;
    mem->table = cn_table_create(entry_key);
    mem->max_bytes = max_bytes;
    cn_list_init(&mem->entries);
    cn_list_init(&mem->spare);
    return &mem->base;
}
