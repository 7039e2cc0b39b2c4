/* store/link/replica_set.c - compares addresses by their hashes (FNV-1a), because nobody asks for
 * the addresses themselves. Any thread. */
#include "store/link/replica_set.h"

static uint64_t
hash(uint64_t from, struct cn_str text)
{
    for (size_t i = 0; i < text.len; i++)
        from = (from ^ (unsigned char)text.ptr[i]) * UINT64_C(1099511628211);
    return from;
}

static bool
has(const struct cn_replica_set *set, uint64_t name)
{
    for (uint32_t i = 0; i < set->n; i++)
        if (set->names[i] == name)
            return true;
    return false;
}

static void
add(struct cn_replica_set *set, uint64_t name)
{
    if (set->n < CN_REPLICAS_SEEN && !has(set, name))
        set->names[set->n++] = name;
}

void
cn_replica_set_add(struct cn_replica_set *set, struct cn_str host, struct cn_str port)
{
    const uint64_t named = hash(UINT64_C(14695981039346656037), host);

    add(set, hash(hash(named, CN_STR(" ")), port));
}

void
cn_replica_set_join(struct cn_replica_set *set, const struct cn_replica_set *others)
{
    for (uint32_t i = 0; i < others->n; i++)
        add(set, others->names[i]);
}

uint32_t
cn_replica_set_common(const struct cn_replica_set *set, const struct cn_replica_set *others)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < set->n; i++)
        n += has(others, set->names[i]);
    return n;
}
