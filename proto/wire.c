/* proto/wire.c - bounds-checked little-endian fields. Any thread. */
#include "proto/wire.h"

#include <endian.h>
#include <string.h>

#include "core/panic.h"

void
cn_reader_init(struct cn_reader *reader, const void *bytes, size_t len)
{
    reader->at = bytes;
    reader->end = len ? reader->at + len : reader->at;
    reader->bad = false;
}

size_t
cn_reader_left(const struct cn_reader *reader)
{
    return (size_t)(reader->end - reader->at);
}

/* `len` bytes, or NULL and bad. */
static const unsigned char *
reader_take(struct cn_reader *reader, size_t len)
{
    const unsigned char *at = reader->at;

    if (reader->bad || len > cn_reader_left(reader)) {
        reader->bad = true;
        return NULL;
    }
    reader->at += len;
    return at;
}

static uint32_t
u32_at(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint8_t
cn_read_u8(struct cn_reader *reader)
{
    const unsigned char *at = reader_take(reader, 1);

    return at ? at[0] : 0;
}

uint16_t
cn_read_u16(struct cn_reader *reader)
{
    const unsigned char *at = reader_take(reader, 2);

    return at ? (uint16_t)(at[0] | at[1] << 8) : 0;
}

uint32_t
cn_read_u32(struct cn_reader *reader)
{
    const unsigned char *at = reader_take(reader, 4);

    return at ? u32_at(at) : 0;
}

uint64_t
cn_read_u64(struct cn_reader *reader)
{
    const unsigned char *at = reader_take(reader, 8);

    return at ? u32_at(at) | (uint64_t)u32_at(at + 4) << 32 : 0;
}

struct cn_str
cn_read_bytes(struct cn_reader *reader, size_t len)
{
    const unsigned char *at = reader_take(reader, len);

    return at ? (struct cn_str){(const char *)at, len} : (struct cn_str){NULL, 0};
}

struct cn_str
cn_read_str32(struct cn_reader *reader)
{
    return cn_read_bytes(reader, cn_read_u32(reader));
}

struct cn_str
cn_read_str16(struct cn_reader *reader)
{
    return cn_read_bytes(reader, cn_read_u16(reader));
}

static void
put_little_endian(unsigned char *at, uint64_t value, unsigned bytes)
{
    value = htole64(value);
    memcpy(at, &value, bytes);
}

static void
write_number(struct cn_buf *buf, uint64_t value, unsigned bytes)
{
    char *at = cn_buf_reserve(buf, bytes);

    if (!at)
        return;
    put_little_endian((unsigned char *)at, value, bytes);
    buf->len += bytes;
}

void
cn_write_u8(struct cn_buf *buf, uint8_t value)
{
    write_number(buf, value, 1);
}

void
cn_write_u16(struct cn_buf *buf, uint16_t value)
{
    write_number(buf, value, 2);
}

void
cn_write_u32(struct cn_buf *buf, uint32_t value)
{
    write_number(buf, value, 4);
}

void
cn_write_u64(struct cn_buf *buf, uint64_t value)
{
    write_number(buf, value, 8);
}

void
cn_write_str32(struct cn_buf *buf, struct cn_str text)
{
    if (text.len > UINT32_MAX) {
        buf->failed = 1;
        return;
    }
    cn_write_u32(buf, (uint32_t)text.len);
    cn_buf_append_str(buf, text);
}

void
cn_write_str16(struct cn_buf *buf, struct cn_str text)
{
    if (text.len > UINT16_MAX) {
        buf->failed = 1;
        return;
    }
    cn_write_u16(buf, (uint16_t)text.len);
    cn_buf_append_str(buf, text);
}

void
cn_patch_u32(struct cn_buf *buf, size_t offset, uint32_t value)
{
    if (buf->failed)
        return;
    cn_assert(offset + 4 <= buf->len);
    put_little_endian((unsigned char *)buf->data + offset, value, 4);
}
