/* proto/frame_priv.h - what the encoders and decoders of frames share. Any thread. */
#ifndef CN_PROTO_FRAME_PRIV_H
#define CN_PROTO_FRAME_PRIV_H

#include "proto/frame.h"

/* Writes a frame's header and returns its offset. Its length is filled in by frame_end. */
static inline size_t
frame_begin(struct cn_buf *buf, enum cn_frame_type type, uint32_t count)
{
    size_t begun = buf->len;

    cn_write_u32(buf, 0);
    cn_write_u32(buf, (uint32_t)type | CN_FRAME_VERSION << 8); /* u8 type, u8 version, u16 0 */
    cn_write_u32(buf, count);
    return begun;
}

/* Fills in the length. `borrowed`: bytes of the payload that are not in the buffer, because they
 * are sent from where they lie. */
static inline void
frame_end_borrowed(struct cn_buf *buf, size_t begun, uint64_t borrowed)
{
    uint64_t payload = buf->len - begun - CN_FRAME_HEADER_BYTES + borrowed;

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
    frame_end_borrowed(buf, begun, 0);
}

static inline int
bad_payload(struct cn_error *err, const char *what)
{
    return cn_fail(err, CN_E_PROTOCOL, "malformed %s frame", what);
}

/* Was the whole payload read, with no byte left over and none missing? */
static inline bool
reader_done(const struct cn_reader *reader)
{
    return !reader->bad && cn_reader_left(reader) == 0;
}

/* A list of headers: u32 count, then per header str16 name, str32 value. */
void cn_frame_write_headers(struct cn_buf *buf, const struct cn_header *headers, uint32_t count);
/* Reads such a list into an array from the arena, NULL when it is empty. Returns 0, CN_E_PROTOCOL
 * or CN_E_OUT_OF_MEMORY. */
int cn_frame_read_headers(struct cn_reader *reader, struct cn_arena *arena, struct cn_header **out,
                          uint32_t *count_out, struct cn_error *err);
/* Writes a text that may be large, in one of three ways: as a str32; as a str32 whose bytes are not
 * copied, because `borrowed` notes where they lie and *unsent counts them until they are sent; or
 * into `body_memory`, and then u32 CN_FRAME_PLACED, u32 slot, u32 number, u64 at and u32 bytes of
 * its place. `borrowed` or `body_memory` NULL: not in that way. */
#define CN_FRAME_PLACED UINT32_MAX
#define CN_FRAME_PLACE_BYTES (4 + 4 + 8 + 4)
void cn_frame_write_large(struct cn_buf *buf, struct cn_borrowed_output *borrowed,
                          struct cn_body_memory *body_memory, uint32_t *unsent, struct cn_str text);
/* Reads such a text. One that is in `body_memory` must be released there. A place that is wrong, or
 * `body_memory` NULL for a text that is there, sets `bad`. */
struct cn_str cn_frame_read_large(struct cn_reader *reader, struct cn_body_memory *body_memory);

#endif
