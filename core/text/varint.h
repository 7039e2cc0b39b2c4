/* core/text/varint.h - varints: numbers with as many bytes as they need. Each byte has seven bits
 * of the number, the lowest first, and all bytes except the last have their highest bit set
 * (LEB128, as in protobuf). Example: 300 is ac 02. Any thread. */
#ifndef CN_CORE_TEXT_VARINT_H
#define CN_CORE_TEXT_VARINT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text/str.h"

#define CN_VARINT_MAX 10 /* the room that cn_put_varint needs */

/* Writes a number at `to` in at least `least` bytes. Returns the address behind it. */
static inline char *
cn_put_wide_varint(uint64_t value, unsigned least, char *to)
{
    for (unsigned n = 1; value >= 0x80 || n < least; n++, value >>= 7)
        *to++ = (char)(value | 0x80);
    *to++ = (char)value;
    return to;
}

/* Writes a number in as few bytes as possible. */
static inline char *
cn_put_varint(uint64_t value, char *to)
{
    return cn_put_wide_varint(value, 1, to);
}

/* Takes a number from the beginning of `rest`. False: it is cut short or has over 64 bits. */
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
