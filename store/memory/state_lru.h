/* store/memory/state_lru.h - the sequences whose decoded state a worker keeps, bounded by number
 * and bytes.
 *
 * Intrusive: the entry sits in the owner's object. An object that is being worked on is taken out
 * and put back afterwards, so it is never evicted while in use. Its place stays, since nearly all
 * come back; who doesn't is forgotten. Who goes is one of those that were not used for longest: in
 * the order in which they came, but for those used since. All operations are O(1). Owned by the
 * worker's thread.
 */
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
    uint64_t bytes;         /* what the object counts for */
    bool placed, out, used; /* the LRU's; false at first */
};

/* Called when an entry must go; it is out of the LRU already and belongs to the callee. */
typedef void (*cn_lru_evict_fn)(void *ctx, struct cn_lru_entry *entry);

/* `max_entries` 0 keeps nothing: each put evicts at once. */
struct cn_lru *cn_lru_create(uint64_t max_entries, uint64_t max_bytes, cn_lru_evict_fn evict,
                             void *ctx);
/* Evicts all. */
void cn_lru_clear(struct cn_lru *lru);
/* As clear, and frees it; NULL is allowed. */
void cn_lru_destroy(struct cn_lru *lru);

/* Takes the entry out: the caller owns it until it puts it back, or has it forgotten. NULL when it
 * isn't there, or is out already. */
struct cn_lru_entry *cn_lru_take(struct cn_lru *lru, struct cn_str key);
/* An entry that was taken out, or never put in, does not come back: its memory is the caller's to
 * free. */
void cn_lru_forget(struct cn_lru *lru, struct cn_lru_entry *entry);
/* These keys, CN_PREFETCH_MAX at most, will be taken soon: asks for the memory that this touches,
 * and for `owner_bytes` of the owner's objects. `found` gets for each the entry of that key's hash,
 * for further hints, or NULL. */
void cn_lru_prefetch(const struct cn_lru *lru, const struct cn_str *keys, uint32_t n,
                     size_t owner_bytes, struct cn_lru_entry **found);
/* Puts in, back or as the newest; key and bytes are set, and none of that key is in; another one
 * that is out is forgotten. Then evicts until the bounds hold, which may take this one. */
void cn_lru_put(struct cn_lru *lru, struct cn_lru_entry *entry);

uint64_t cn_lru_count(const struct cn_lru *lru);
uint64_t cn_lru_bytes(const struct cn_lru *lru);

#endif
