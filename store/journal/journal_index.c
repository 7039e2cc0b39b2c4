/* store/journal/journal_index.c - the hash table of journal_index.h. Owned by the worker's thread.
 *
 * Up to 30 MB of a worker's memory are such tables, and a look-up among a million keys is mostly
 * waiting for memory. So a slot has only 8 bytes: 32 bits of the key's hash and the entry's offset
 * / 8. Most other keys are told apart by the hash; only an equal hash costs a look at the entry's
 * bytes. As entries are 8 bytes aligned, the offset reaches 32 GiB of a file.
 *
 * Collisions go to the next slot (linear probing), which mostly lies in the same cache line.
 * Nothing is ever removed, so there are no markers of deleted slots: a key that the store removed
 * has an entry with CN_JOURNAL_REMOVED, which hides what older files and LMDB have. */
#include "store/journal/journal_index.h"

#include <sodium/crypto_shorthash.h>
#include <sodium/randombytes.h>
#include <stdbool.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/memory/prefetch.h"
#include "store/journal/journal.h"

#define MIN_SLOTS 64

void
cn_journal_index_fini(struct cn_journal_index *index)
{
    cn_free(index->slots);
    *index = (struct cn_journal_index){NULL, 0, 0};
}

void
cn_journal_index_reset(struct cn_journal_index *index)
{
    if (index->n == 0)
        return;
    if (index->n < index->mask / 16) {
        cn_journal_index_fini(index);
        return;
    }
    memset(index->slots, 0, sizeof(*index->slots) * ((size_t)index->mask + 1));
    index->n = 0;
}

uint32_t
cn_journal_hash(struct cn_str key)
{
    static unsigned char secret[crypto_shorthash_KEYBYTES];
    static bool drawn;
    uint64_t hash;

    if (!drawn) {
        randombytes_buf(secret, sizeof(secret));
        drawn = true;
    }
    crypto_shorthash((unsigned char *)&hash, (const unsigned char *)key.ptr, key.len, secret);
    return (uint32_t)hash;
}

/* The slot of the key, or the empty slot where it belongs. It ends because at least half of the
 * slots are empty. */
static struct cn_journal_slot *
slot_of(const struct cn_journal_index *index, const char *bytes, uint32_t hash, struct cn_str key)
{
    struct cn_journal_entry entry;
    uint32_t i = hash & index->mask;

    for (;; i = (i + 1) & index->mask) {
        struct cn_journal_slot *slot = &index->slots[i];

        if (slot->at == 0)
            return slot;
        if (slot->hash != hash)
            continue;
        cn_journal_entry_at(bytes + (uint64_t)slot->at * 8, &entry);
        if (cn_str_eq(entry.key, key))
            return slot;
    }
}

uint64_t
cn_journal_index_find(const struct cn_journal_index *index, const char *bytes, uint32_t hash,
                      struct cn_str key)
{
    return index->n ? (uint64_t)slot_of(index, bytes, hash, key)->at * 8 : 0;
}

bool
cn_journal_index_has(const struct cn_journal_index *index, uint32_t hash, uint64_t at)
{
    uint32_t i = hash & index->mask;

    if (index->n == 0)
        return false;
    while (index->slots[i].at && index->slots[i].at != at / 8)
        i = (i + 1) & index->mask;
    return index->slots[i].at != 0;
}

void
cn_journal_index_prefetch(const struct cn_journal_index *index, uint32_t hash)
{
    if (cn_prefetch_pays(index->n))
        cn_prefetch(&index->slots[hash & index->mask], sizeof(*index->slots));
}

void
cn_journal_index_prefetch_entry(const struct cn_journal_index *index, const char *bytes,
                                uint32_t hash, size_t entry_bytes)
{
    uint32_t i = hash & index->mask;

    if (!cn_prefetch_pays(index->n))
        return;
    while (index->slots[i].at && index->slots[i].hash != hash)
        i = (i + 1) & index->mask;
    if (index->slots[i].at)
        cn_prefetch(bytes + (uint64_t)index->slots[i].at * 8, entry_bytes);
}

/* Doubles the table. The hashes are in the slots, so no entry is read. */
static void
grow(struct cn_journal_index *index)
{
    struct cn_journal_index old = *index;
    const size_t n_old = old.slots ? (size_t)old.mask + 1 : 0, n = n_old ? n_old * 2 : MIN_SLOTS;

    cn_assert(n <= (size_t)UINT32_MAX + 1);
    index->slots = cn_alloc(sizeof(*index->slots) * n);
    index->mask = (uint32_t)(n - 1);
    for (size_t i = 0; i < n_old; i++) {
        uint32_t to = old.slots[i].hash & index->mask;

        if (old.slots[i].at == 0)
            continue;
        while (index->slots[to].at)
            to = (to + 1) & index->mask;
        index->slots[to] = old.slots[i];
    }
    cn_free(old.slots);
}

static void
make_room(struct cn_journal_index *index)
{
    if (!index->slots || index->n >= index->mask / 2)
        grow(index);
}

void
cn_journal_index_move(struct cn_journal_index *index, uint32_t hash, uint64_t from, uint64_t at)
{
    uint32_t i;

    cn_assert(at > 0 && at % 8 == 0 && at / 8 <= UINT32_MAX);
    make_room(index);
    for (i = hash & index->mask; index->slots[i].at != from / 8; i = (i + 1) & index->mask)
        cn_assert(index->slots[i].at != 0);
    index->n += from == 0;
    index->slots[i] = (struct cn_journal_slot){hash, (uint32_t)(at / 8)};
}

uint64_t
cn_journal_index_set(struct cn_journal_index *index, const char *bytes, uint32_t hash,
                     struct cn_str key, uint64_t at)
{
    struct cn_journal_slot *slot;
    uint64_t before;

    cn_assert(at > 0 && at % 8 == 0 && at / 8 <= UINT32_MAX);
    make_room(index);
    slot = slot_of(index, bytes, hash, key);
    before = (uint64_t)slot->at * 8;
    index->n += before == 0;
    *slot = (struct cn_journal_slot){hash, (uint32_t)(at / 8)};
    return before;
}
