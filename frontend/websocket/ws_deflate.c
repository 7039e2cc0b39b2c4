/* frontend/websocket/ws_deflate.c - zlib for whole messages. On one loop.
 *
 * A compressed message is a raw deflate stream that was flushed, without the four bytes 00 00 ff ff
 * with which a flush ends: the sender removes them, and the receiver appends them again.
 */
#include "frontend/websocket/ws_deflate.h"

#include <string.h>
#include <zlib.h>

#include "core/memory/mem.h"

#define LEVEL 1 /* as for HTTP answers (frontend/http/compress.c) */
#define MEM_LEVEL 8
#define STEP_BYTES 16384 /* room that is added at a time */
#define TAIL_BYTES 4

struct cn_ws_deflate {
    z_stream in;
    bool has_in;
    z_stream out[CN_WS_WINDOW_MAX + 1];
    bool has_out[CN_WS_WINDOW_MAX + 1];
};

struct cn_ws_deflate *
cn_ws_deflate_create(void)
{
    return cn_alloc(sizeof(struct cn_ws_deflate));
}

void
cn_ws_deflate_destroy(struct cn_ws_deflate *deflate)
{
    if (!deflate)
        return;
    if (deflate->has_in)
        inflateEnd(&deflate->in);
    for (unsigned bits = 0; bits <= CN_WS_WINDOW_MAX; bits++)
        if (deflate->has_out[bits])
            deflateEnd(&deflate->out[bits]);
    cn_free(deflate);
}

/* Appends what the next bytes of the message become. Returns zlib's result. */
static int
inflate_some(z_stream *stream, size_t max_bytes, struct cn_buf *out)
{
    int rc;

    do {
        const size_t left = max_bytes - out->len;
        const size_t want = left < STEP_BYTES ? left + 1 : STEP_BYTES;
        char *room = cn_buf_reserve(out, want);

        if (!room)
            return Z_MEM_ERROR;
        stream->next_out = (unsigned char *)room;
        stream->avail_out = (unsigned)want;
        rc = inflate(stream, Z_SYNC_FLUSH);
        out->len += want - stream->avail_out;
        if (out->len > max_bytes)
            return Z_BUF_ERROR;
    } while (rc == Z_OK && (stream->avail_in > 0 || stream->avail_out == 0));
    return rc;
}

enum cn_ws_inflate_result
cn_ws_inflate(struct cn_ws_deflate *deflate, struct cn_str message, size_t max_bytes,
              struct cn_buf *out)
{
    static const unsigned char tail[TAIL_BYTES] = {0, 0, 0xff, 0xff};
    z_stream *stream = &deflate->in;
    int rc;

    if (deflate->has_in)
        inflateReset(stream);
    else if (inflateInit2(stream, -CN_WS_WINDOW_MAX) != Z_OK)
        return CN_WS_INFLATES_TOO_LARGE;
    deflate->has_in = true;
    stream->next_in = (unsigned char *)(uintptr_t)message.ptr;
    stream->avail_in = (unsigned)message.len;
    rc = inflate_some(stream, max_bytes, out);
    if (rc == Z_OK || (rc == Z_BUF_ERROR && out->len <= max_bytes && stream->avail_in == 0)) {
        stream->next_in = (unsigned char *)(uintptr_t)tail;
        stream->avail_in = TAIL_BYTES;
        rc = inflate_some(stream, max_bytes, out);
    }
    if (out->len > max_bytes || rc == Z_MEM_ERROR)
        return CN_WS_INFLATES_TOO_LARGE;
    /* Z_BUF_ERROR: all of the input was used before. Z_STREAM_END: the sender has ended the stream,
     * which RFC 7692, 7.2.3.5 allows. */
    return rc == Z_OK || rc == Z_BUF_ERROR || rc == Z_STREAM_END ? CN_WS_INFLATED
                                                                 : CN_WS_NOT_DEFLATE;
}

static z_stream *
compressor_of(struct cn_ws_deflate *deflate, unsigned bits)
{
    z_stream *stream = &deflate->out[bits];

    if (deflate->has_out[bits]) {
        deflateReset(stream);
        return stream;
    }
    if (deflateInit2(stream, LEVEL, Z_DEFLATED, -(int)bits, MEM_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
        return NULL;
    deflate->has_out[bits] = true;
    return stream;
}

bool
cn_ws_deflate(struct cn_ws_deflate *codec, unsigned window_bits, struct cn_str message,
              struct cn_buf *out)
{
    z_stream *stream = compressor_of(codec, window_bits);
    const size_t before = out->len;

    if (!stream)
        return false;
    stream->next_in = (unsigned char *)(uintptr_t)message.ptr;
    stream->avail_in = (unsigned)message.len;
    do {
        char *room = cn_buf_reserve(out, STEP_BYTES);

        if (!room) {
            out->len = before;
            out->failed = 0;
            return false;
        }
        stream->next_out = (unsigned char *)room;
        stream->avail_out = STEP_BYTES;
        deflate(stream, Z_SYNC_FLUSH);
        out->len += STEP_BYTES - stream->avail_out;
    } while (stream->avail_out == 0);
    out->len -= TAIL_BYTES; /* a flush always ends with them */
    return true;
}
