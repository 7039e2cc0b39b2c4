/* store/journal/journal_index.h - where the newest entry of each key is in a journal file.
 *
 * A hash table with open addressing: 8 bytes a slot, at most half of the slots in use. It does not
 * hold the keys; an entry's key is compared in the bytes of the file. Single entries are never
 * removed, only replaced, or all dropped at once. One thread. */
#ifndef CN_STORE_JOURNAL_JOURNAL_INDEX_H
#define CN_STORE_JOURNAL_JOURNAL_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text/str.h"

struct cn_journal_slot {
    uint32_t hash, at; /* `at`: the entry's offset / 8; 0: the slot is empty */
};

struct cn_journal_index {
    struct cn_journal_slot *slots;
    uint32_t mask, n;
};

/* Frees the slots. A zeroed index is an empty one. */
void cn_journal_index_fini(struct cn_journal_index *index);
/* Drops all entries. A table that was many times larger than they needed is freed. */
void cn_journal_index_reset(struct cn_journal_index *index);

/* The hash of a key, keyed with a secret of this process, because clients choose the ids. */
uint32_t cn_journal_hash(struct cn_str key);
/* The offset of the key's entry in `bytes`, or 0 if there is none. */
uint64_t cn_journal_index_find(const struct cn_journal_index *index, const char *bytes,
                               uint32_t hash, struct cn_str key);
/* Is the entry at this offset the newest one of its key? `hash` is the key's hash. */
bool cn_journal_index_has(const struct cn_journal_index *index, uint32_t hash, uint64_t at);
/* Prefetches for a look-up of the key with this hash: first its slot, then, when the slot has come,
 * the first `entry_bytes` of its entry in `bytes`. */
void cn_journal_index_prefetch(const struct cn_journal_index *index, uint32_t hash);
void cn_journal_index_prefetch_entry(const struct cn_journal_index *index, const char *bytes,
                                     uint32_t hash, size_t entry_bytes);
/* Sets the offset of the key's entry, a multiple of 8 and not 0. Returns the old offset, or 0. */
uint64_t cn_journal_index_set(struct cn_journal_index *index, const char *bytes, uint32_t hash,
                              struct cn_str key, uint64_t at);
/* Sets the offset like cn_journal_index_set, for a key whose old offset is known to be `from` (0:
 * it has none). It reads no entry. */
void cn_journal_index_move(struct cn_journal_index *index, uint32_t hash, uint64_t from,
                           uint64_t at);

#endif
