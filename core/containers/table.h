/* core/containers/table.h - a hash table of pointers to items, which hold their own key.
 *
 * Open addressing in 64 shards. A shard that grows moves only its own slots, so no insert pays for
 * the whole table. Keys are hashed with SipHash under a random key of the table, because clients
 * choose sequence ids and could otherwise make them collide. A slot has 16 bytes, and at most 3/4
 * of the slots are in use. Not thread-safe. */
#ifndef CN_CORE_CONTAINERS_TABLE_H
#define CN_CORE_CONTAINERS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/text/str.h"

/* Returns the key of an item, borrowed from the item. */
typedef struct cn_str (*cn_table_key_fn)(const void *item);

struct cn_table;

/* Makes an empty table, which cn_table_destroy frees. Never fails. */
struct cn_table *cn_table_create(cn_table_key_fn key_of);
/* Frees the table, not the items; NULL is allowed. */
void cn_table_destroy(struct cn_table *table);

size_t cn_table_count(const struct cn_table *table);
/* The item with this key, or NULL. */
void *cn_table_find(const struct cn_table *table, struct cn_str key);
/* Prefetches for look-ups of these keys, at most CN_PREFETCH_MAX: their slots, and then the first
 * `item_bytes` of their items. It is worth its cost for several keys of a large table, which no
 * cache holds. Changes nothing. `found` is NULL, or gets for each key the item that its hash
 * suggests, for further prefetches; NULL where there is none or the table is small. */
void cn_table_prefetch(const struct cn_table *table, const struct cn_str *keys, uint32_t n,
                       size_t item_bytes, void **found);
/* Adds an item, whose key must not be there yet (checked in debug builds). */
void cn_table_insert(struct cn_table *table, void *item);
/* Adds an item. If the key is there already, the new item replaces the old one, which is returned;
 * otherwise NULL. */
void *cn_table_put(struct cn_table *table, void *item);
/* Removes and returns the item with this key, or returns NULL. */
void *cn_table_remove(struct cn_table *table, struct cn_str key);
/* Visits all items: begin with *cursor = 0; NULL is the end. Nothing may be inserted or removed in
 * between, except the item that was returned last. */
void *cn_table_next(const struct cn_table *table, size_t *cursor);

#endif
