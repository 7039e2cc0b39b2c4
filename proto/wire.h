/* proto/wire.h - bounds-checked reading and writing of little-endian fields.
 *
 * A reader turns sticky `bad` on the first field that does not fit; what it
 * returns after that is zero or empty, so parsers check once at the end.
 */
#ifndef CN_PROTO_WIRE_H
#define CN_PROTO_WIRE_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/memory/buf.h"
#include "core/text/str.h"

struct cn_reader {
    const unsigned char *at, *end;
    bool bad;
};

/* Inline: a frame is read and written in many small pieces. */

static inline void
cn_reader_init(struct cn_reader *reader, const void *bytes, size_t len)
{
    reader->at = (const unsigned char *)bytes;
    reader->end = len ? reader->at + len : reader->at;
    reader->bad = false;
}

static inline size_t
cn_reader_left(const struct cn_reader *reader)
{
    return (size_t)(reader->end - reader->at);
}

/* `len` bytes, or NULL and bad. */
static inline const unsigned char *
cn_reader_take(struct cn_reader *reader, size_t len)
{
    const unsigned char *at = reader->at;

    if (reader->bad || len > cn_reader_left(reader)) {
        reader->bad = true;
        return NULL;
    }
    reader->at += len;
    return at;
}

/* The number of `bytes` bytes; 0 and bad where they are not there. */
static inline uint64_t
cn_read_number(struct cn_reader *reader, unsigned bytes)
{
    const unsigned char *at = cn_reader_take(reader, bytes);
    uint64_t value = 0;

    if (at)
        memcpy(&value, at, bytes);
    return le64toh(value);
}

static inline uint8_t
cn_read_u8(struct cn_reader *reader)
{
    return (uint8_t)cn_read_number(reader, 1);
}

static inline uint16_t
cn_read_u16(struct cn_reader *reader)
{
    return (uint16_t)cn_read_number(reader, 2);
}

static inline uint32_t
cn_read_u32(struct cn_reader *reader)
{
    return (uint32_t)cn_read_number(reader, 4);
}

static inline uint64_t
cn_read_u64(struct cn_reader *reader)
{
    return cn_read_number(reader, 8);
}

/* Borrowed from the reader's bytes. */
static inline struct cn_str
cn_read_bytes(struct cn_reader *reader, size_t len)
{
    const unsigned char *at = cn_reader_take(reader, len);

    return at ? (struct cn_str){(const char *)at, len} : (struct cn_str){NULL, 0};
}

/* Length (u32 or u16), then bytes. */
static inline struct cn_str
cn_read_str32(struct cn_reader *reader)
{
    return cn_read_bytes(reader, cn_read_u32(reader));
}

static inline struct cn_str
cn_read_str16(struct cn_reader *reader)
{
    return cn_read_bytes(reader, cn_read_u16(reader));
}

/* The low `bytes` bytes of `value`. */
static inline void
cn_write_number(struct cn_buf *buf, uint64_t value, unsigned bytes)
{
    char *at = cn_buf_reserve(buf, bytes);

    if (!at)
        return;
    value = htole64(value);
    memcpy(at, &value, bytes);
    buf->len += bytes;
}

/* Failures stick in buf->failed. */
static inline void
cn_write_u8(struct cn_buf *buf, uint8_t value)
{
    cn_write_number(buf, value, 1);
}

static inline void
cn_write_u16(struct cn_buf *buf, uint16_t value)
{
    cn_write_number(buf, value, 2);
}

static inline void
cn_write_u32(struct cn_buf *buf, uint32_t value)
{
    cn_write_number(buf, value, 4);
}

static inline void
cn_write_u64(struct cn_buf *buf, uint64_t value)
{
    cn_write_number(buf, value, 8);
}

void cn_write_str32(struct cn_buf *buf, struct cn_str text);
/* Longer than 65,535 bytes: buf->failed. */
void cn_write_str16(struct cn_buf *buf, struct cn_str text);
/* Overwrites 4 bytes at `offset`, which must have been written before. */
void cn_patch_u32(struct cn_buf *buf, size_t offset, uint32_t value);

#endif
