/* proto/frame_priv.h - what the encoders and decoders of frames share. Any thread. */
#ifndef CN_PROTO_FRAME_PRIV_H
#define CN_PROTO_FRAME_PRIV_H

#include "proto/frame.h"

/* Writes a header whose length frame_end fills in; returns its offset. */
static inline size_t
frame_begin(struct cn_buf *buf, enum cn_frame_type type, uint32_t count)
{
    size_t begun = buf->len;

    cn_write_u32(buf, 0);
    cn_write_u8(buf, (uint8_t)type);
    cn_write_u8(buf, CN_FRAME_VERSION);
    cn_write_u16(buf, 0);
    cn_write_u32(buf, count);
    return begun;
}

/* `lent`: bytes of the payload that are not in the buffer. */
static inline void
frame_end_lent(struct cn_buf *buf, size_t begun, uint64_t lent)
{
    uint64_t payload = buf->len - begun - CN_FRAME_HEADER_BYTES + lent;

    if (buf->failed)
        return;
    if (payload > UINT32_MAX) {
        buf->failed = 1;
        return;
    }
    cn_patch_u32(buf, begun, (uint32_t)payload);
}

static inline void
frame_end(struct cn_buf *buf, size_t begun)
{
    frame_end_lent(buf, begun, 0);
}

static inline int
bad_payload(struct cn_error *err, const char *what)
{
    return cn_fail(err, CN_E_PROTOCOL, "malformed %s frame", what);
}

/* All read, nothing left over. */
static inline bool
reader_done(const struct cn_reader *reader)
{
    return !reader->bad && cn_reader_left(reader) == 0;
}

#endif
