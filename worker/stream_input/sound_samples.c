/* worker/stream_input/sound_samples.c - samples as clients write them, as floats. Any thread. */
#include "worker/stream_input/sound_samples.h"

#include <endian.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_CHARACTERS_MAX 63

unsigned
cn_sample_bytes(enum cn_stream_encoding encoding)
{
    return encoding == CN_ENCODING_PCM_S16LE ? 2 : encoding == CN_ENCODING_PCM_F32LE ? 4 : 1;
}

static float
read_s16(const char *at)
{
    uint16_t bits;

    memcpy(&bits, at, sizeof(bits));
    bits = le16toh(bits);
    return (float)(int16_t)bits / 32768.0f;
}

static float
read_f32(const char *at)
{
    uint32_t bits;
    float value;

    memcpy(&bits, at, sizeof(bits));
    bits = le32toh(bits);
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* ITU-T G.711: sign, 3 bits of exponent, 4 of mantissa, all inverted; the bias is 132. */
static float
read_mulaw(const char *at)
{
    const unsigned bits = ~(unsigned)(unsigned char)*at & 0xffu;
    const int magnitude = (int)((((bits & 0x0f) << 3) + 132) << ((bits & 0x70) >> 4)) - 132;

    return (float)(bits & 0x80 ? -magnitude : magnitude) / 32768.0f;
}

static float
read_one(enum cn_stream_encoding encoding, const char *at)
{
    switch (encoding) {
    case CN_ENCODING_PCM_S16LE:
        return read_s16(at);
    case CN_ENCODING_PCM_F32LE:
        return read_f32(at);
    case CN_ENCODING_MULAW:
        return read_mulaw(at);
    }
    return 0;
}

int
cn_samples_read(struct cn_str bytes, const struct cn_sound_format *format, enum cn_stream_nan nan,
                float *out, size_t n, struct cn_error *err)
{
    const unsigned step = cn_sample_bytes(format->encoding);
    const char *at = bytes.ptr;

    for (size_t i = 0; i < n; i++) {
        double sum = 0;

        for (uint32_t c = 0; c < format->channels; c++, at += step) {
            float value = read_one(format->encoding, at);

            if (!isfinite(value) && nan == CN_STREAM_NAN_REFUSE)
                return cn_fail(err, CN_E_BAD_REQUEST,
                               "sample %zu is %g, which is not a number that a model can use; send "
                               "finite samples, or set stream.nanPolicy: zero",
                               i, (double)value);
            sum += isfinite(value) ? (double)value : 0;
        }
        out[i] = (float)(sum / format->channels);
    }
    return 0;
}

/* --- JSON lists of numbers --- */

static int
not_numbers(size_t at, struct cn_error *err)
{
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "the body is not a JSON list of numbers such as [1, 2.5, -3e4] (at byte %zu)",
                   at);
}

static size_t
skip_space(struct cn_str json, size_t at)
{
    while (at < json.len && (json.ptr[at] == ' ' || json.ptr[at] == '\t' || json.ptr[at] == '\r' ||
                             json.ptr[at] == '\n'))
        at++;
    return at;
}

/* Reads the number at `at`, and returns the place behind it; `at` when there is none. Only the
 * characters of JSON numbers are given to strtof, which knows more. */
static size_t
read_number(struct cn_str json, size_t at, float *value)
{
    char text[NUMBER_CHARACTERS_MAX + 1], *end;
    size_t len = 0;

    while (at + len < json.len && len < NUMBER_CHARACTERS_MAX && json.ptr[at + len] &&
           strchr("+-.0123456789eE", json.ptr[at + len])) {
        text[len] = json.ptr[at + len];
        len++;
    }
    text[len] = '\0';
    if (text[0] != '-' && (text[0] < '0' || text[0] > '9'))
        return at;
    *value = strtof(text, &end);
    return *end ? at : at + len;
}

int
cn_numbers_read(struct cn_str json, float *out, size_t max, size_t *n, struct cn_error *err)
{
    size_t at = skip_space(json, 0), next;
    float value;

    *n = 0;
    if (at == json.len || json.ptr[at] != '[')
        return not_numbers(at, err);
    at = skip_space(json, at + 1);
    while (at < json.len && (json.ptr[at] != ']' || *n > 0)) {
        next = read_number(json, at, &value);
        if (next == at)
            return not_numbers(at, err);
        if (!isfinite(value))
            return cn_fail(err, CN_E_BAD_REQUEST, "number %zu is too large for 32 bits", *n);
        if (*n == max)
            return cn_fail(err, CN_E_TOO_LARGE,
                           "the request has more than %zu numbers (stream.maxChunkSamples); send "
                           "them in several requests",
                           max);
        if (out)
            out[*n] = value;
        ++*n;
        at = skip_space(json, next);
        if (at == json.len || json.ptr[at] != ',')
            break;
        at = skip_space(json, at + 1);
    }
    if (at == json.len || json.ptr[at] != ']')
        return not_numbers(at, err);
    at = skip_space(json, at + 1);
    return at == json.len ? 0 : not_numbers(at, err);
}
