/* frontend/intake/compress.c - zlib in small steps; the only file that uses zlib. Any thread.
 *
 * zlib can compress a whole body in one call, but for a body of some MB that call takes tens of
 * milliseconds, and all clients of the loop would wait. So http_stream.c asks for one block at a
 * time, and each block reads at most CN_COMPRESS_STEP_BYTES of the body. Between two blocks the
 * loop serves other clients.
 */
#include "frontend/intake/compress.h"

#include <stdbool.h>
#include <zlib.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"

/* Level 1 costs about a third of the CPU time of zlib's default, 6, and has most of its gain. The
 * loop has other clients to serve. */
#define LEVEL 1
#define MEM_LEVEL 8 /* zlib's default: 256 KiB a stream together with the largest window */

struct cn_compressor {
    z_stream stream;
    struct cn_str rest;
    bool ended;
};

static const struct {
    struct cn_str name;
    int window_bits; /* zlib's parameter: 15 for zlib's frame (RFC 1950), plus 16 for gzip's */
} codings[] = {
    [CN_CODING_IDENTITY] = {CN_STR("identity"), 0},
    [CN_CODING_GZIP] = {CN_STR("gzip"), 15 + 16},
    [CN_CODING_DEFLATE] = {CN_STR("deflate"), 15},
};
#define N_CODINGS (sizeof(codings) / sizeof(codings[0]))

const char *
cn_coding_name(enum cn_coding coding)
{
    return codings[coding].name.ptr;
}

/* Reads a q-value in thousandths: "0.85" -> 850. Returns -1 when the text is not a q-value (RFC
 * 9110, 12.4.2). */
static int
parse_q(struct cn_str text)
{
    static const int weights[] = {1000, 0, 100, 10, 1};
    int q = 0;

    if (text.len == 0 || text.len > 5)
        return -1;
    for (size_t i = 0; i < text.len; i++) {
        if (i == 1) {
            if (text.ptr[i] != '.')
                return -1;
            continue;
        }
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return -1;
        q += (text.ptr[i] - '0') * weights[i];
    }
    return q <= 1000 ? q : -1;
}

/* Reads one item of Accept-Encoding, for example "gzip;q=0.5": stores the coding and returns the
 * q-value in thousandths, or -1 when the item must be ignored. */
static int
parse_item(struct cn_str item, enum cn_coding *coding)
{
    const char *semicolon = item.len ? memchr(item.ptr, ';', item.len) : NULL;
    struct cn_str name = item, q;

    if (semicolon)
        name.len = (size_t)(semicolon - item.ptr);
    name = cn_str_trim(name);
    for (size_t i = 0; i < N_CODINGS; i++) {
        if (!cn_str_eq_nocase(name, codings[i].name))
            continue;
        *coding = (enum cn_coding)i;
        if (!semicolon)
            return 1000;
        q = cn_str_trim(
            (struct cn_str){semicolon + 1, (size_t)(item.ptr + item.len - semicolon) - 1});
        if (q.len < 2 || (q.ptr[0] | 0x20) != 'q' || q.ptr[1] != '=')
            return -1;
        return parse_q((struct cn_str){q.ptr + 2, q.len - 2});
    }
    return -1;
}

enum cn_coding
cn_coding_choose(const struct cn_header *headers, uint32_t n)
{
    enum cn_coding best = CN_CODING_IDENTITY, coding = best;
    int best_q = 0, q;

    for (uint32_t i = 0; i < n; i++) {
        struct cn_str rest = headers[i].value;

        if (!cn_str_eq_header(headers[i].name, CN_STR("accept-encoding")))
            continue;
        while (rest.len) {
            const char *comma = memchr(rest.ptr, ',', rest.len);
            struct cn_str item = {rest.ptr, comma ? (size_t)(comma - rest.ptr) : rest.len};
            size_t used = item.len + (comma ? 1 : 0);

            q = parse_item(item, &coding);
            if (q > best_q) {
                best_q = q;
                best = coding;
            }
            rest = (struct cn_str){rest.ptr + used, rest.len - used};
        }
    }
    return best;
}

struct cn_compressor *
cn_compressor_create(enum cn_coding coding, struct cn_str body)
{
    struct cn_compressor *compressor = cn_alloc(sizeof(*compressor));

    cn_assert(coding != CN_CODING_IDENTITY);
    compressor->rest = body;
    if (deflateInit2(&compressor->stream, LEVEL, Z_DEFLATED, codings[coding].window_bits, MEM_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        cn_free(compressor);
        return NULL;
    }
    return compressor;
}

/* The last step finishes the stream. It may need several calls, when what zlib still has does not
 * fit into `room`; they read no more input and return what is left. */
size_t
cn_compressor_read(struct cn_compressor *compressor, char *out, size_t room)
{
    z_stream *stream = &compressor->stream;
    size_t step = compressor->rest.len < CN_COMPRESS_STEP_BYTES ? compressor->rest.len
                                                                : CN_COMPRESS_STEP_BYTES;
    bool last = step == compressor->rest.len;
    int rc;

    if (compressor->ended || room == 0)
        return 0;
    stream->next_in = (Bytef *)(uintptr_t)compressor->rest.ptr;
    stream->avail_in = (uInt)step;
    stream->next_out = (Bytef *)out;
    stream->avail_out = room < UINT32_MAX ? (uInt)room : UINT32_MAX;
    /* zlib may keep all bytes of a step in its buffers and write nothing; a reader that returns
     * nothing would end the answer. The flush makes it write at least some bytes. */
    rc = deflate(stream, last ? Z_FINISH : Z_SYNC_FLUSH);
    cn_assert(rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR);
    compressor->ended = rc == Z_STREAM_END;
    compressor->rest.ptr += step - stream->avail_in;
    compressor->rest.len -= step - stream->avail_in;
    return (size_t)((char *)stream->next_out - out);
}

void
cn_compressor_destroy(struct cn_compressor *compressor)
{
    if (!compressor)
        return;
    deflateEnd(&compressor->stream);
    cn_free(compressor);
}

/* The output buffer grows by this. A small body that claims to be large therefore takes memory only
 * for what it really holds. */
#define INFLATE_BLOCK_BYTES 65536

/* Decompresses block by block and checks the limit after each one. So a decompression bomb (some kB
 * that stand for GB) costs at most one block more than `max_bytes`. */
static int
inflate_blocks(z_stream *stream, size_t max_bytes, struct cn_buf *out, struct cn_error *err)
{
    int rc = Z_OK;

    while (rc == Z_OK) {
        char *room = cn_buf_reserve(out, INFLATE_BLOCK_BYTES);

        if (!room)
            return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for the decompressed body");
        stream->next_out = (Bytef *)room;
        stream->avail_out = INFLATE_BLOCK_BYTES;
        rc = inflate(stream, Z_NO_FLUSH);
        out->len += INFLATE_BLOCK_BYTES - stream->avail_out;
        if (out->len > max_bytes)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "Decompressed data size exceeds the maximum allowed value of %zu bytes. "
                           "Use --max-v2-request-size to increase the limit.",
                           max_bytes);
    }
    if (rc != Z_STREAM_END || stream->avail_in > 0)
        return cn_fail(err, CN_E_BAD_REQUEST, "the body is not a complete gzip or zlib stream: %s",
                       stream->msg          ? stream->msg
                       : rc != Z_STREAM_END ? "it ends early"
                                            : "bytes follow its end");
    return 0;
}

int
cn_inflate(struct cn_str body, size_t max_bytes, struct cn_buf *out, struct cn_error *err)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)body.ptr, .avail_in = (uInt)body.len};
    int rc;

    if (body.len > UINT32_MAX || inflateInit2(&stream, 15 + 32) != Z_OK) /* either frame */
        return cn_fail(err, CN_E_OUT_OF_MEMORY,
                       "not enough memory to decompress a body of %zu bytes", body.len);
    rc = inflate_blocks(&stream, max_bytes, out, err);
    inflateEnd(&stream);
    return rc;
}
