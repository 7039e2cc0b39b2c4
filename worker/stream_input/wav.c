/* worker/stream_input/wav.c - reads the header of a WAV file. Any thread.
 *
 * A WAV file is a RIFF container: after "RIFF", a size and "WAVE" come chunks, each with a name of
 * four characters, a size and that many bytes, filled up to an even number. "fmt " describes the
 * samples, and "data" has them. Other chunks are skipped. A program that writes to a pipe does not
 * know the size of the data, and writes 0 or a size near 4 GiB.
 */
#include "worker/stream_input/wav.h"

#include <inttypes.h>

#include "proto/wire.h"

#define TAG_PCM 1
#define TAG_FLOAT 3
#define TAG_MULAW 7
#define TAG_EXTENSIBLE 0xfffe
#define FMT_BYTES 16    /* the part of "fmt " that all files have */
#define SUBFORMAT_AT 24 /* the tag of an extensible format, behind the beginning of "fmt " */
#define SIZE_UNKNOWN 0xffffff00 /* sizes from here on mean that the writer did not know */

bool
cn_wav_begins(struct cn_str bytes)
{
    return bytes.len >= 12 && memcmp(bytes.ptr, "RIFF", 4) == 0 &&
           memcmp(bytes.ptr + 8, "WAVE", 4) == 0;
}

static int
choose_encoding(unsigned tag, unsigned bits, enum cn_stream_encoding *out, struct cn_error *err)
{
    if (tag == TAG_PCM && bits == 16)
        *out = CN_ENCODING_PCM_S16LE;
    else if (tag == TAG_FLOAT && bits == 32)
        *out = CN_ENCODING_PCM_F32LE;
    else if (tag == TAG_MULAW && bits == 8)
        *out = CN_ENCODING_MULAW;
    else
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the WAV file has format %u with %u bits; send 16-bit PCM (format 1), "
                       "32-bit float (3) or 8-bit mu-law (7)",
                       tag, bits);
    return 0;
}

static int
read_format(struct cn_str chunk, struct cn_sound_format *out, struct cn_error *err)
{
    struct cn_reader reader, extended;
    unsigned tag, bits;

    cn_reader_init(&reader, chunk.ptr, chunk.len);
    tag = cn_read_u16(&reader);
    out->channels = cn_read_u16(&reader);
    out->rate = cn_read_u32(&reader);
    cn_reader_take(&reader, 6); /* bytes in a second and in a frame, which follow from the rest */
    bits = cn_read_u16(&reader);
    if (reader.bad)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the chunk \"fmt \" of the WAV file has %zu bytes; at least %d are needed",
                       chunk.len, FMT_BYTES);
    if (tag == TAG_EXTENSIBLE) {
        cn_reader_init(&extended, chunk.ptr, chunk.len);
        cn_reader_take(&extended, SUBFORMAT_AT);
        tag = cn_read_u16(&extended);
    }
    return choose_encoding(tag, bits, &out->encoding, err);
}

int
cn_wav_read(struct cn_str bytes, struct cn_wav *out, struct cn_error *err)
{
    struct cn_reader reader;
    bool described = false;
    int rc;

    *out = (struct cn_wav){0};
    cn_reader_init(&reader, bytes.ptr, bytes.len);
    cn_reader_take(&reader, 12);
    for (;;) {
        const struct cn_str name = cn_read_bytes(&reader, 4);
        const uint32_t size = cn_read_u32(&reader);
        struct cn_str chunk;

        if (reader.bad)
            break;
        if (cn_str_eq(name, CN_STR("data")) && !described)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "the WAV file has its samples before the chunk \"fmt \" that describes "
                           "them");
        if (cn_str_eq(name, CN_STR("data"))) {
            out->data_at = bytes.len - cn_reader_left(&reader);
            out->data_bytes = size == 0 || size >= SIZE_UNKNOWN ? UINT64_MAX : size;
            return 0;
        }
        chunk = cn_read_bytes(&reader, size);
        if (reader.bad)
            break;
        if (cn_str_eq(name, CN_STR("fmt "))) {
            if ((rc = read_format(chunk, &out->format, err)) != 0)
                return rc;
            described = true;
        }
        if (size % 2 && cn_reader_left(&reader))
            cn_reader_take(&reader, 1);
    }
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "the WAV header is not complete: the request has %zu bytes and no chunk "
                   "\"data\"; send the whole header in one request",
                   bytes.len);
}
