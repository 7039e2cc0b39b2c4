/* core/containers/table.h - a hash table of pointers to items that hold their own key.
 *
 * Open addressing in 64 shards; a shard that grows moves its own slots only, so
 * no insert ever pays for the whole table. Keys are hashed with SipHash under
 * a random per-process key: clients choose sequence ids. 16 bytes a slot, at
 * most 3/4 full. Not thread-safe.
 */
#ifndef CN_CORE_CONTAINERS_TABLE_H
#define CN_CORE_CONTAINERS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/text/str.h"

/* The key of an item, borrowed from it. */
typedef struct cn_str (*cn_table_key_fn)(const void *item);

struct cn_table;

struct cn_table *cn_table_create(cn_table_key_fn key_of);
/* Frees the table, not the items; NULL is allowed. */
void cn_table_destroy(struct cn_table *table);

size_t cn_table_count(const struct cn_table *table);
void *cn_table_find(const struct cn_table *table, struct cn_str key);
/* Looks for these keys, CN_PREFETCH_MAX at most, will come soon: fetches at once what each of them
 * would wait for by itself, their slots and then the first `item_bytes` of the items. Worth it for
 * several keys of many, which no cache holds. Changes nothing. `found` is NULL, or gets for each
 * key the item of that hash, for further hints: NULL where there is none, or the table is small. */
void cn_table_prefetch(const struct cn_table *table, const struct cn_str *keys, uint32_t n,
                       size_t item_bytes, void **found);
/* The key must not be there yet (asserted in debug builds). */
void cn_table_insert(struct cn_table *table, void *item);
/* The same where the key may be there: the new item takes the place of that one, which is returned;
 * NULL: there was none. */
void *cn_table_put(struct cn_table *table, void *item);
/* The item that was removed, or NULL. */
void *cn_table_remove(struct cn_table *table, struct cn_str key);
/* Visits all items: start with *cursor = 0, ends with NULL. No insert or remove in between,
 * except cn_table_remove of the item just returned. */
void *cn_table_next(const struct cn_table *table, size_t *cursor);

#endif
