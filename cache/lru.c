/* cache/lru.c - a hash table for finding, a list for the order of use. Owned by the worker's thread. */
#include "cache/lru.h"

#include "core/mem.h"
#include "core/panic.h"
#include "core/table.h"

struct cn_lru {
    struct cn_table *table;
    struct cn_list order; /* oldest first */
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

static void
lru_unlink(struct cn_lru *lru, struct cn_lru_entry *entry)
{
    cn_list_remove(&entry->link);
    lru->count--;
    lru->bytes -= entry->bytes;
}

void
cn_lru_forget(struct cn_lru *lru, struct cn_lru_entry *entry)
{
    if (entry->placed)
        cn_table_remove(lru->table, entry->key);
    entry->placed = entry->out = false;
}

static void
lru_evict_oldest(struct cn_lru *lru)
{
    struct cn_lru_entry *entry = cn_container_of(lru->order.next, struct cn_lru_entry, link);

    lru_unlink(lru, entry);
    cn_lru_forget(lru, entry);
    lru->evict(lru->ctx, entry);
}

void
cn_lru_clear(struct cn_lru *lru)
{
    while (lru->count)
        lru_evict_oldest(lru);
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
    lru_unlink(lru, entry);
    entry->out = true;
    return entry;
}

void
cn_lru_fetch(const struct cn_lru *lru, const struct cn_str *keys, uint32_t n, size_t owner_bytes,
             struct cn_lru_entry **found)
{
    void *items[CN_FETCH_MAX];

    cn_table_fetch(lru->table, keys, n, owner_bytes, items);
    for (uint32_t i = 0; i < n; i++) {
        found[i] = items[i];
        if (!found[i] || found[i]->out)
            continue;
        cn_fetch(found[i]->link.prev,
                 sizeof(struct cn_list)); /* it will be taken out between them */
        cn_fetch(found[i]->link.next, sizeof(struct cn_list));
    }
}

void
cn_lru_put(struct cn_lru *lru, struct cn_lru_entry *entry)
{
    struct cn_lru_entry *other = entry->placed ? NULL : cn_table_put(lru->table, entry);

    if (other) {
        cn_assert(other->out);
        other->placed = false;
    }
    entry->placed = true;
    entry->out = false;
    cn_list_push_back(&lru->order, &entry->link);
    lru->count++;
    lru->bytes += entry->bytes;
    while (lru->count && (lru->count > lru->max_entries || lru->bytes > lru->max_bytes))
        lru_evict_oldest(lru);
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
