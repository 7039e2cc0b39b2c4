/* store/journal/journal_index.h - where the newest entry of each key stands in a journal's bytes.
 *
 * Open addressing, 8 bytes a slot, at most half full; an entry's key is compared in the bytes
 * themselves. Entries are only ever replaced or dropped all at once. One thread.
 */
#ifndef CN_STORE_JOURNAL_JOURNAL_INDEX_H
#define CN_STORE_JOURNAL_JOURNAL_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text/str.h"

struct cn_journal_slot {
    uint32_t hash, at; /* `at`: the entry's offset / 8; 0: empty */
};

struct cn_journal_index {
    struct cn_journal_slot *slots;
    uint32_t mask, n;
};

/* A zeroed index is an empty one. */
void cn_journal_index_fini(struct cn_journal_index *index);
/* Drops all entries; gives back memory that was many times more than they needed. */
void cn_journal_index_reset(struct cn_journal_index *index);

/* Keyed, since clients choose the ids. */
uint32_t cn_journal_hash(struct cn_str key);
/* The offset of the key's entry in `bytes`, or 0. */
uint64_t cn_journal_index_find(const struct cn_journal_index *index, const char *bytes,
                               uint32_t hash, struct cn_str key);
/* Is the entry at this offset, of a key of this hash, the newest of its key? */
bool cn_journal_index_has(const struct cn_journal_index *index, uint32_t hash, uint64_t at);
/* The key of this hash will be looked for: asks for its slot's memory; and, once that has come, for
 * that of the `bytes` that its entry begins with. */
void cn_journal_index_prefetch(const struct cn_journal_index *index, uint32_t hash);
void cn_journal_index_prefetch_entry(const struct cn_journal_index *index, const char *bytes,
                                     uint32_t hash, size_t entry_bytes);
/* Puts an offset (a multiple of 8, not 0) for the key; returns the one it had, or 0. */
uint64_t cn_journal_index_set(struct cn_journal_index *index, const char *bytes, uint32_t hash,
                              struct cn_str key, uint64_t at);
/* The same of a key whose offset is known to be `from`, 0: none. Looks at no entry. */
void cn_journal_index_move(struct cn_journal_index *index, uint32_t hash, uint64_t from,
                           uint64_t at);

#endif
