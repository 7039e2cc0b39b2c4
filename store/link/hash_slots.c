/* store/link/hash_slots.c - reads what the servers of a cluster say about slots. Any thread.
 *
 * A cluster divides its keys into 16384 slots, and each primary has some of them. The slot of a key
 * is CRC16 modulo 16384, of the whole key or of what stands between the first { and the next }:
 * "c:{42}:a" and "c:{42}:b" are in one slot, while "{}a" has nothing between its braces and is
 * hashed as a whole.
 *
 * CLUSTER SLOTS answers with a list of ranges, each with its primary first:
 *   [[0, 5460, ["10.0.0.1", 6379, "id"], ["10.0.0.4", 6379, "id"]], [5461, 10922, ...], ...]
 * A link needs the owners of its few slots only, so this list is not kept.
 *
 * A server that does not have a slot says so with "MOVED 3999 10.0.0.2:6379", or with "ASK ..." for
 * a single command while the slot moves. */
#include "store/link/hash_slots.h"

#include <string.h>

/* CRC16 as XMODEM computes it; the cluster's specification names it. It is computed for a few keys
 * when a store is opened, so it needs no table. */
static uint16_t
crc16(struct cn_str bytes)
{
    uint16_t crc = 0;

    for (size_t i = 0; i < bytes.len; i++) {
        crc = (uint16_t)(crc ^ (unsigned char)bytes.ptr[i] << 8);
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc;
}

uint16_t
cn_hash_slot_of(struct cn_str key)
{
    const char *open = key.len ? memchr(key.ptr, '{', key.len) : NULL, *shut;

    if (open) {
        const size_t rest = key.len - (size_t)(open + 1 - key.ptr);

        shut = rest ? memchr(open + 1, '}', rest) : NULL;
        if (shut && shut > open + 1)
            key = (struct cn_str){open + 1, (size_t)(shut - open - 1)};
    }
    return crc16(key) % CN_HASH_SLOTS;
}

/* A host that a server does not name ("" or nil) is the one that was asked. "?" says that it should
 * name it and cannot, so nobody can use it. */
static bool
set_owner(struct cn_hash_slot_owner *out, struct cn_str host, const char *origin, long long port)
{
    if (host.len == 0)
        host = cn_str_from(origin);
    if (host.len == 0 || host.len > sizeof(out->host) - 1 || memchr(host.ptr, '\0', host.len) ||
        port < 1 || port > 65535 || cn_str_eq(host, CN_STR("?")))
        return false;
    memcpy(out->host, host.ptr, host.len);
    out->host[host.len] = '\0';
    out->port = (uint16_t)port;
    return true;
}

/* Reads one entry, [first, last, [host, port, ...], replicas...]. */
static bool
read_range(const redisReply *entry, const char *origin, long long *first, long long *last,
           struct cn_hash_slot_owner *owner)
{
    const redisReply *primary;
    struct cn_str host = {"", 0};

    if (entry->type != REDIS_REPLY_ARRAY || entry->elements < 3 ||
        entry->element[0]->type != REDIS_REPLY_INTEGER ||
        entry->element[1]->type != REDIS_REPLY_INTEGER)
        return false;
    primary = entry->element[2];
    if (primary->type != REDIS_REPLY_ARRAY || primary->elements < 2 ||
        primary->element[1]->type != REDIS_REPLY_INTEGER)
        return false;
    if (primary->element[0]->type == REDIS_REPLY_STRING)
        host = (struct cn_str){primary->element[0]->str, (size_t)primary->element[0]->len};
    else if (primary->element[0]->type != REDIS_REPLY_NIL)
        return false;
    *first = entry->element[0]->integer;
    *last = entry->element[1]->integer;
    return set_owner(owner, host, origin, primary->element[1]->integer);
}

bool
cn_hash_slots_take(const redisReply *reply, const char *origin, const uint16_t *slots, uint32_t n,
                   struct cn_hash_slot_owner *owners)
{
    struct cn_hash_slot_owner owner;
    long long first, last;
    bool any = false;

    if (reply->type != REDIS_REPLY_ARRAY)
        return false;
    /* Look first, because an old map is better than half of a new one. */
    for (size_t i = 0; i < reply->elements; i++) {
        if (!read_range(reply->element[i], origin, &first, &last, &owner))
            continue;
        for (uint32_t k = 0; k < n && !any; k++)
            any = slots[k] >= first && slots[k] <= last;
    }
    if (!any)
        return false;
    for (uint32_t k = 0; k < n; k++)
        owners[k].port = 0;
    for (size_t i = 0; i < reply->elements; i++) {
        if (!read_range(reply->element[i], origin, &first, &last, &owner))
            continue;
        for (uint32_t k = 0; k < n; k++)
            if (slots[k] >= first && slots[k] <= last)
                owners[k] = owner;
    }
    return true;
}

bool
cn_hash_slot_redirect(struct cn_str error, const char *origin, struct cn_redirect *out)
{
    const struct cn_str kind = cn_str_cut(&error, ' ');
    struct cn_str place;
    const char *colon;
    long long port = 0;

    out->ask = cn_str_eq(kind, CN_STR("ASK"));
    if (!out->ask && !cn_str_eq(kind, CN_STR("MOVED")))
        return false;
    cn_str_cut(&error, ' '); /* the slot, which the sender knows */
    place = cn_str_cut(&error, ' ');
    colon = place.len ? memrchr(place.ptr, ':', place.len) : NULL; /* IPv6 addresses have more */
    if (!colon)
        return false;
    for (const char *c = colon + 1; c < place.ptr + place.len; c++) {
        if (*c < '0' || *c > '9' || port > 65535)
            return false;
        port = port * 10 + (*c - '0');
    }
    return set_owner(&out->to, (struct cn_str){place.ptr, (size_t)(colon - place.ptr)}, origin,
                     port);
}
