/* proto/wire.h - bounds-checked reading and writing of little-endian fields. Any thread.
 *
 * A reader never reads past its end. At the first field that does not fit it sets `bad`, which
 * stays set; from then on each call returns zero or an empty string. So a parser can read all
 * fields of a message and check `bad` once, but it must check it before it uses a number as a count
 * or a size. Writers append to a struct cn_buf, whose `failed` stays set in the same way.
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

/* These functions are inline because a frame is read and written in many small pieces. */

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

/* Returns the next `len` bytes; NULL, and sets `bad`, when fewer are left. */
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

/* Returns the next number, which has `bytes` (1 to 8) bytes; 0, and sets `bad`, when fewer are
 * left. */
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

/* The string is borrowed from the reader's bytes and is not NUL-terminated. */
static inline struct cn_str
cn_read_bytes(struct cn_reader *reader, size_t len)
{
    const unsigned char *at = cn_reader_take(reader, len);

    return at ? (struct cn_str){(const char *)at, len} : (struct cn_str){NULL, 0};
}

/* Read a length (u32 or u16) and that many bytes, borrowed as above. */
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

/* Appends the low `bytes` (1 to 8) bytes of `value`. */
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

/* Each appends one number; a failure sets buf->failed. */
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

/* Append a length (u32 or u16) and the bytes. A text that is too long for its length field (over
 * 65,535 bytes for str16) sets buf->failed. */
void cn_write_str32(struct cn_buf *buf, struct cn_str text);
void cn_write_str16(struct cn_buf *buf, struct cn_str text);
/* Overwrites the 4 bytes at `offset`, which must have been written before. */
void cn_patch_u32(struct cn_buf *buf, size_t offset, uint32_t value);

#endif
