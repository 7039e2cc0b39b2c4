/* core/containers/table.c - open addressing with linear probing, in shards. Owned by one thread.
 *
 * The top six bits of a hash choose the shard, the low bits the first slot to look at. The whole
 * hash is kept in the slot, so that a look-up reads an item only if the hash is equal, and growing
 * reads no items at all.
 *
 * Removing leaves no mark. Instead the items behind the gap that belong further to the front move
 * up (close_gap), so a table in which items come and go all the time stays as fast as a new one.
 * The price is that a walk through the table must not meet an item twice or miss one when the
 * current item is removed; cn_table_next says how.
 *
 * The invariant that every search relies on: between the first slot of an item's hash and the slot
 * where the item is, there is no free slot. */
#include "core/containers/table.h"

#include <sodium/crypto_shorthash.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/memory/prefetch.h"
#include "core/system/random.h"

#define SHARD_BITS 6
#define SHARDS (1u << SHARD_BITS)
#define FIRST_SLOTS 8u
#define MAX_SLOTS (1u << 28) /* of one shard; a cursor can hold no larger number */

struct slot {
    void *item; /* NULL: the slot is free */
    uint64_t hash;
};

struct shard {
    struct slot *slots;
    uint32_t cap, used; /* cap: 0 or a power of two */
};

struct cn_table {
    cn_table_key_fn key_of;
    size_t count;
    unsigned char hash_key[crypto_shorthash_KEYBYTES];
    struct shard shards[SHARDS];
};

struct cn_table *
cn_table_create(cn_table_key_fn key_of)
{
    struct cn_table *table = cn_alloc(sizeof(*table));

    table->key_of = key_of;
    cn_random_bytes(table->hash_key, sizeof(table->hash_key));
    return table;
}

void
cn_table_destroy(struct cn_table *table)
{
    unsigned i;

    if (!table)
        return;
    for (i = 0; i < SHARDS; i++)
        cn_free(table->shards[i].slots);
    cn_free(table);
}

size_t
cn_table_count(const struct cn_table *table)
{
    return table->count;
}

static uint64_t
hash_of(const struct cn_table *table, struct cn_str key)
{
    uint64_t hash;

    _Static_assert(sizeof(hash) == crypto_shorthash_BYTES, "a SipHash is 8 bytes");
    crypto_shorthash((unsigned char *)&hash, (const unsigned char *)key.ptr, key.len,
                     table->hash_key);
    return hash;
}

static unsigned
shard_of(uint64_t hash)
{
    return (unsigned)(hash >> (64 - SHARD_BITS));
}

/* The slot of this key, or NULL. Each shard has a free slot, so the search ends. */
static struct slot *
find_slot(const struct cn_table *table, const struct shard *shard, struct cn_str key, uint64_t hash)
{
    uint32_t mask = shard->cap - 1, i;

    if (shard->cap == 0)
        return NULL;
    for (i = (uint32_t)hash & mask; shard->slots[i].item; i = (i + 1) & mask)
        if (shard->slots[i].hash == hash && cn_str_eq(table->key_of(shard->slots[i].item), key))
            return &shard->slots[i];
    return NULL;
}

static void
place(struct slot *slots, uint32_t cap, struct slot slot)
{
    uint32_t mask = cap - 1, i = (uint32_t)slot.hash & mask;

    while (slots[i].item)
        i = (i + 1) & mask;
    slots[i] = slot;
}

/* Doubles a shard. */
static void
grow(struct shard *shard)
{
    uint32_t cap = shard->cap ? shard->cap * 2 : FIRST_SLOTS, i;
    struct slot *slots;

    cn_assert(cap <= MAX_SLOTS);
    slots = cn_alloc(cap * sizeof(*slots));
    for (i = 0; i < shard->cap; i++)
        if (shard->slots[i].item)
            place(slots, cap, shard->slots[i]);
    cn_free(shard->slots);
    shard->slots = slots;
    shard->cap = cap;
}

void *
cn_table_find(const struct cn_table *table, struct cn_str key)
{
    uint64_t hash = hash_of(table, key);
    struct slot *slot = find_slot(table, &table->shards[shard_of(hash)], key, hash);

    return slot ? slot->item : NULL;
}

/* Two rounds: the first asks for all slots, the second reads them, which have arrived by then, and
 * asks for the items. */
void
cn_table_prefetch(const struct cn_table *table, const struct cn_str *keys, uint32_t n,
                  size_t item_bytes, void **found)
{
    uint64_t hashes[CN_PREFETCH_MAX];

    cn_assert(n <= CN_PREFETCH_MAX);
    if (found)
        memset(found, 0, n * sizeof(*found));
    if (!cn_prefetch_pays(table->count))
        return;
    for (uint32_t i = 0; i < n; i++) {
        const struct shard *shard;

        hashes[i] = hash_of(table, keys[i]);
        shard = &table->shards[shard_of(hashes[i])];
        if (shard->cap)
            cn_prefetch(&shard->slots[(uint32_t)hashes[i] & (shard->cap - 1)], sizeof(struct slot));
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct shard *shard = &table->shards[shard_of(hashes[i])];
        uint32_t at = (uint32_t)hashes[i] & (shard->cap - 1);

        if (shard->cap == 0)
            continue;
        while (shard->slots[at].item && shard->slots[at].hash != hashes[i])
            at = (at + 1) & (shard->cap - 1);
        if (!shard->slots[at].item)
            continue;
        cn_prefetch(shard->slots[at].item, item_bytes);
        if (found)
            found[i] = shard->slots[at].item;
    }
}

static void
add(struct cn_table *table, struct shard *shard, struct slot slot)
{
    if (shard->used >= shard->cap / 4 * 3)
        grow(shard);
    place(shard->slots, shard->cap, slot);
    shard->used++;
    table->count++;
}

void
cn_table_insert(struct cn_table *table, void *item)
{
    struct cn_str key = table->key_of(item);
    uint64_t hash = hash_of(table, key);
    struct shard *shard = &table->shards[shard_of(hash)];

#ifdef CN_DEBUG
    cn_assert(!find_slot(table, shard, key, hash));
#endif
    add(table, shard, (struct slot){item, hash});
}

void *
cn_table_put(struct cn_table *table, void *item)
{
    struct cn_str key = table->key_of(item);
    uint64_t hash = hash_of(table, key);
    struct shard *shard = &table->shards[shard_of(hash)];
    struct slot *slot = find_slot(table, shard, key, hash);
    void *old;

    if (!slot) {
        add(table, shard, (struct slot){item, hash});
        return NULL;
    }
    old = slot->item;
    slot->item = item;
    return old;
}

/* Closes the gap at `hole`. An item behind it may move there unless that is in front of the first
 * slot of its hash. When one has moved, its old slot is the gap. */
static void
close_gap(struct shard *shard, uint32_t hole)
{
    uint32_t mask = shard->cap - 1, i;

    for (i = (hole + 1) & mask; shard->slots[i].item; i = (i + 1) & mask) {
        uint32_t home = (uint32_t)shard->slots[i].hash & mask;

        if (((i - home) & mask) >= ((i - hole) & mask)) {
            shard->slots[hole] = shard->slots[i];
            hole = i;
        }
    }
    shard->slots[hole].item = NULL;
}

void *
cn_table_remove(struct cn_table *table, struct cn_str key)
{
    uint64_t hash = hash_of(table, key);
    struct shard *shard = &table->shards[shard_of(hash)];
    struct slot *slot = find_slot(table, shard, key, hash);
    void *item;

    if (!slot)
        return NULL;
    item = slot->item;
    close_gap(shard, (uint32_t)(slot - shard->slots));
    shard->used--;
    table->count--;
    return item;
}

/* A shard is visited backwards from one of its free slots, `start`. Removing the item that was just
 * returned moves up only items behind it and before the next free slot, and those were visited
 * already. The cursor holds the shard (7 bits), `start` (28 bits) and the steps done (29 bits), so
 * a walk needs no memory, and later removals cannot change where it began. */
static size_t
make_cursor(unsigned shard, uint32_t start, uint32_t steps)
{
    return (size_t)shard << 57 | (size_t)start << 29 | steps;
}

void *
cn_table_next(const struct cn_table *table, size_t *cursor)
{
    unsigned at = (unsigned)(*cursor >> 57);
    uint32_t start = (uint32_t)(*cursor >> 29) & (MAX_SLOTS - 1);
    uint32_t steps = (uint32_t)*cursor & ((1u << 29) - 1);

    _Static_assert(sizeof(size_t) == 8, "a cursor needs 64 bits");
    for (; at < SHARDS; at++, steps = 0) {
        const struct shard *shard = &table->shards[at];

        if (steps == 0)
            for (start = 0; start < shard->cap && shard->slots[start].item; start++)
                ;
        while (++steps < shard->cap) {
            void *item = shard->slots[(start - steps) & (shard->cap - 1)].item;

            if (item) {
                *cursor = make_cursor(at, start, steps);
                return item;
            }
        }
    }
    *cursor = make_cursor(SHARDS, 0, 0);
    return NULL;
}
