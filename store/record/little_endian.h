/* store/record/little_endian.h - reads and writes little-endian numbers at any address, aligned or
 * not. All formats of the store use them. Any thread. */
#ifndef CN_STORE_RECORD_LITTLE_ENDIAN_H
#define CN_STORE_RECORD_LITTLE_ENDIAN_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void
put16(void *at, uint16_t v)
{
    v = htole16(v);
    memcpy(at, &v, sizeof(v));
}

static inline void
put32(void *at, uint32_t v)
{
    v = htole32(v);
    memcpy(at, &v, sizeof(v));
}

static inline void
put64(void *at, uint64_t v)
{
    v = htole64(v);
    memcpy(at, &v, sizeof(v));
}

static inline uint16_t
get16(const void *at)
{
    uint16_t v;

    memcpy(&v, at, sizeof(v));
    return le16toh(v);
}

static inline uint32_t
get32(const void *at)
{
    uint32_t v;

    memcpy(&v, at, sizeof(v));
    return le32toh(v);
}

static inline uint64_t
get64(const void *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof(v));
    return le64toh(v);
}

#endif
