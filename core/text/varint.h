/* core/text/varint.h - numbers of as many bytes as they need: seven bits in each, the lowest first,
 * the highest bit set in all but the last (LEB128; protobuf's varint). Any thread. */
#ifndef CN_CORE_TEXT_VARINT_H
#define CN_CORE_TEXT_VARINT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text/str.h"

#define CN_VARINT_MAX 10 /* bytes of room that cn_put_varint needs */

/* Writes at `to`, in `least` bytes at least; returns the place behind. */
static inline char *
cn_put_wide_varint(uint64_t value, unsigned least, char *to)
{
    for (unsigned n = 1; value >= 0x80 || n < least; n++, value >>= 7)
        *to++ = (char)(value | 0x80);
    *to++ = (char)value;
    return to;
}

/* The same in as many bytes as it needs. */
static inline char *
cn_put_varint(uint64_t value, char *to)
{
    return cn_put_wide_varint(value, 1, to);
}

/* Takes one from the front of `rest`. False: cut short, or over 64 bits. */
static inline bool
cn_take_varint(struct cn_str *rest, uint64_t *out)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && rest->len > 0; shift += 7) {
        unsigned char c = (unsigned char)*rest->ptr++;

        rest->len--;
        if (shift == 63 && c > 1)
            return false;
        value |= (uint64_t)(c & 0x7f) << shift;
        if (c < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

#endif
