/* store/memory/state_lru.c - the LRU of decoded states: a hash table that finds an entry, and a
 * list that says which one is evicted next. Owned by the worker's thread.
 *
 * The list works as in the CLOCK algorithm: an entry that is used stays where it is and is only
 * marked. Moving it to the end, as an exact LRU does, would touch its two neighbours, which are
 * cache misses among a million entries. An entry that comes to the beginning of the list with a
 * mark loses the mark and goes to the end; one without a mark is evicted.
 *
 * An entry's life: cn_lru_put places it in the table and at the end of the list. cn_lru_take marks
 * it as out; it counts no more, but keeps its places. cn_lru_put makes it count again. If
 * next_to_go meets an entry that is out, it takes it from the list only, and cn_lru_put appends it
 * again. */
#include "store/memory/state_lru.h"

#include "core/containers/table.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/memory/prefetch.h"

/* One eviction passes over at most this many used entries, so that no step waits for all of them.
 */
#define SPARED_MAX 32

struct cn_lru {
    struct cn_table *table;
    /* the first one is the next to be evicted; entries that are out may be among them */
    struct cn_list order;
    uint64_t count, bytes, max_entries, max_bytes;
    cn_lru_evict_fn evict;
    void *ctx;
};

static struct cn_str
entry_key(const void *item)
{
    return ((const struct cn_lru_entry *)item)->key;
}

struct cn_lru *
cn_lru_create(uint64_t max_entries, uint64_t max_bytes, cn_lru_evict_fn evict, void *ctx)
{
    struct cn_lru *lru = cn_alloc(sizeof(*lru));

    lru->table = cn_table_create(entry_key);
    lru->max_entries = max_entries;
    lru->max_bytes = max_bytes;
    lru->evict = evict;
    lru->ctx = ctx;
    cn_list_init(&lru->order);
    return lru;
}

/* The entry counts no more, wherever it is. */
static void
discount(struct cn_lru *lru, const struct cn_lru_entry *entry)
{
    lru->count--;
    lru->bytes -= entry->bytes;
}

/* Called when the entry is no longer in the table. */
static void
unplace(struct cn_lru_entry *entry)
{
    cn_list_remove(&entry->link);
    entry->placed = entry->out = false;
}

void
cn_lru_forget(struct cn_lru *lru, struct cn_lru_entry *entry)
{
    if (!entry->placed)
        return;
    cn_table_remove(lru->table, entry->key);
    unplace(entry);
}

/* Finds the entry to evict. One that was used since its last turn goes to the end, at most
 * SPARED_MAX in a row. One that is out leaves the list until it comes back. */
static struct cn_lru_entry *
next_to_go(struct cn_lru *lru)
{
    for (unsigned spared = 0;; spared++) {
        struct cn_lru_entry *entry = cn_container_of(lru->order.next, struct cn_lru_entry, link);

        if (!entry->out && (!entry->used || spared >= SPARED_MAX))
            return entry;
        entry->used = false;
        cn_list_remove(&entry->link);
        if (!entry->out)
            cn_list_push_back(&lru->order, &entry->link);
    }
}

static void
evict_one(struct cn_lru *lru)
{
    struct cn_lru_entry *entry = next_to_go(lru);

    discount(lru, entry);
    cn_lru_forget(lru, entry);
    lru->evict(lru->ctx, entry);
}

void
cn_lru_clear(struct cn_lru *lru)
{
    while (lru->count)
        evict_one(lru);
}

void
cn_lru_destroy(struct cn_lru *lru)
{
    if (!lru)
        return;
    cn_lru_clear(lru);
    cn_table_destroy(lru->table);
    cn_free(lru);
}

struct cn_lru_entry *
cn_lru_take(struct cn_lru *lru, struct cn_str key)
{
    struct cn_lru_entry *entry = cn_table_find(lru->table, key);

    if (!entry || entry->out)
        return NULL;
    discount(lru, entry);
    entry->out = true;
    return entry;
}

bool
cn_lru_holds(const struct cn_lru *lru, struct cn_str key)
{
    const struct cn_lru_entry *entry = cn_table_find(lru->table, key);

    return entry && !entry->out;
}

void
cn_lru_prefetch(const struct cn_lru *lru, const struct cn_str *keys, uint32_t n, size_t owner_bytes,
                struct cn_lru_entry **found)
{
    void *items[CN_PREFETCH_MAX];

    cn_table_prefetch(lru->table, keys, n, owner_bytes, items);
    for (uint32_t i = 0; i < n; i++)
        found[i] = items[i];
}

/* Adds a new entry to the table, where it replaces one of the same key that is out. */
static void
place(struct cn_lru *lru, struct cn_lru_entry *entry)
{
    struct cn_lru_entry *other = cn_table_put(lru->table, entry);

    if (other) {
        cn_assert(other->out);
        unplace(other);
    }
    cn_list_init(&entry->link);
    entry->placed = true;
}

void
cn_lru_put(struct cn_lru *lru, struct cn_lru_entry *entry)
{
    entry->used = entry->placed;
    if (!entry->placed)
        place(lru, entry);
    if (cn_list_empty(&entry->link))
        cn_list_push_back(&lru->order, &entry->link);
    entry->out = false;
    lru->count++;
    lru->bytes += entry->bytes;
    while (lru->count && (lru->count > lru->max_entries || lru->bytes > lru->max_bytes))
        evict_one(lru);
}

uint64_t
cn_lru_count(const struct cn_lru *lru)
{
    return lru->count;
}

uint64_t
cn_lru_bytes(const struct cn_lru *lru)
{
    return lru->bytes;
}
