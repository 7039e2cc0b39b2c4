/* proto/wire.c - the functions of wire.h that are not inline: those that write texts, and the one
 * that patches a length. Any thread. */
#include "proto/wire.h"

#include "core/errors/panic.h"

/* Appends the length and the bytes with one check of the buffer's room, because frames consist
 * mostly of short texts. */
static void
write_text(struct cn_buf *buf, struct cn_str text, unsigned length_bytes)
{
    const uint64_t len = htole64(text.len);
    char *at;

    if (text.len > (length_bytes == 2 ? UINT16_MAX : UINT32_MAX)) {
        buf->failed = 1;
        return;
    }
    at = cn_buf_reserve(buf, length_bytes + text.len);
    if (!at)
        return;
    memcpy(at, &len, length_bytes);
    if (text.len)
        memcpy(at + length_bytes, text.ptr, text.len);
    buf->len += length_bytes + text.len;
}

void
cn_write_str32(struct cn_buf *buf, struct cn_str text)
{
    write_text(buf, text, 4);
}

void
cn_write_str16(struct cn_buf *buf, struct cn_str text)
{
    write_text(buf, text, 2);
}

void
cn_patch_u32(struct cn_buf *buf, size_t offset, uint32_t value)
{
    if (buf->failed)
        return;
    cn_assert(offset + 4 <= buf->len);
    value = htole32(value);
    memcpy(buf->data + offset, &value, 4);
}
