/* proto/wire.c - the functions of wire.h that are not inline: those that write texts, and the one
 * that patches a length. Any thread. */
#include "proto/wire.h"

#include "core/errors/panic.h"

/* Makes room for a length and the text behind it with one check of the buffer, because frames
 * consist mostly of short texts. Returns NULL, and sets buf->failed, if that is not possible. */
static char *
room_for(struct cn_buf *buf, struct cn_str text, size_t length_bytes, size_t max)
{
    if (text.len > max) {
        buf->failed = 1;
        return NULL;
    }
    return cn_buf_reserve(buf, length_bytes + text.len);
}

void
cn_write_str32(struct cn_buf *buf, struct cn_str text)
{
    const uint32_t len = htole32((uint32_t)text.len);
    char *at = room_for(buf, text, sizeof(len), UINT32_MAX);

    if (!at)
        return;
    memcpy(at, &len, sizeof(len));
    buf->len += sizeof(len) + text.len;
    if (text.len)
        memcpy(at + sizeof(len), text.ptr, text.len);
}

void
cn_write_str16(struct cn_buf *buf, struct cn_str text)
{
    const uint16_t len = htole16((uint16_t)text.len);
    char *at = room_for(buf, text, sizeof(len), UINT16_MAX);

    if (!at)
        return;
    memcpy(at, &len, sizeof(len));
    buf->len += sizeof(len) + text.len;
    if (text.len)
        memcpy(at + sizeof(len), text.ptr, text.len);
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
