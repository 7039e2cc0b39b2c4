/* store/memory/state_lru.h - the sequences whose decoded state a worker keeps in memory, limited by
 * number and by bytes.
 *
 * The entry is a member of the owner's object. An object in use is taken out and put back
 * afterwards, so it is never evicted meanwhile. It keeps its place in the order, since nearly all
 * come back; one that does not is forgotten (cn_lru_forget). The entries that go are among those
 * that were not used for longest: the order is that of arrival, and those that were used since are
 * passed over. All operations are O(1). Owned by the worker's thread. */
#ifndef CN_STORE_MEMORY_STATE_LRU_H
#define CN_STORE_MEMORY_STATE_LRU_H

#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"
#include "core/text/str.h"

struct cn_lru;

struct cn_lru_entry {
    struct cn_list link;
    struct cn_str key;      /* borrowed from the owner's object */
    uint64_t bytes;         /* the bytes that the object counts for */
    bool placed, out, used; /* used by the LRU; initialise with false */
};

/* Called for an entry that is evicted. It is out of the LRU already, and the callee owns it. */
typedef void (*cn_lru_evict_fn)(void *ctx, struct cn_lru_entry *entry);

/* Makes an LRU, which cn_lru_destroy frees. With `max_entries` 0 each put evicts its entry at once.
 */
struct cn_lru *cn_lru_create(uint64_t max_entries, uint64_t max_bytes, cn_lru_evict_fn evict,
                             void *ctx);
/* Evicts all entries. */
void cn_lru_clear(struct cn_lru *lru);
/* Evicts all entries and frees the LRU. NULL is allowed. */
void cn_lru_destroy(struct cn_lru *lru);

/* Takes the key's entry out. The caller owns it until it puts it back or has it forgotten. NULL if
 * there is none, or it is taken out already. */
struct cn_lru_entry *cn_lru_take(struct cn_lru *lru, struct cn_str key);
/* Forgets an entry that was taken out or never put in, so that the caller may free it. */
void cn_lru_forget(struct cn_lru *lru, struct cn_lru_entry *entry);
/* Would cn_lru_take give an entry? */
bool cn_lru_holds(const struct cn_lru *lru, struct cn_str key);
/* Prefetches for cn_lru_take of these keys, at most CN_PREFETCH_MAX: what a look-up touches, and
 * `owner_bytes` of each owner's object. For each key `found` gets the entry that its hash suggests,
 * or NULL; it may be used for further prefetches only. */
void cn_lru_prefetch(const struct cn_lru *lru, const struct cn_str *keys, uint32_t n,
                     size_t owner_bytes, struct cn_lru_entry **found);
/* Puts an entry in, or back after it was taken out. Key and bytes are set. No other entry of the
 * key may be in the LRU; one that is taken out is forgotten. Then entries are evicted until the
 * limits hold, perhaps this one. */
void cn_lru_put(struct cn_lru *lru, struct cn_lru_entry *entry);

uint64_t cn_lru_count(const struct cn_lru *lru);
uint64_t cn_lru_bytes(const struct cn_lru *lru);

#endif
