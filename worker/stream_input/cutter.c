/* worker/stream_input/cutter.c - samples into windows, with a rest. Worker's thread.
 *
 * An encoded rest is little-endian:
 *   offset  0  magic "CNstream"
 *           8  u8 format (1), u8 encoding, u8 channels, u8: the handler's state follows
 *          12  u32 rate of the last request, u32 the model's rate
 *          20  u64 bytes of a WAV file that are still to come
 *          28  u64 number of windows
 *          36  u32 rate of the resampler's input, u32 phase
 *          44  u32 history samples, u32 samples
 *          52  history, samples: floats
 *         end  the handler's state, if there is one
 *
 * With a window of 5 and a hop of 3, two requests of 7 and 6 samples are cut like this:
 *   request 1   0 1 2 3 4 5 6                   window 0 1 2 3 4; the rest 3 4 5 6 is kept
 *   request 2   + 7 8 9 10 11 12                windows 3..7, 6..10; the rest 9 10 11 12 is kept
 *   at the end  the rest is longer than what the last window had already (9 10), so it is filled
 *               with a zero: 9 10 11 12 0, padding 1
 * If the hop is the window, nothing overlaps. The rest is a part of the sequence's state, so a
 * stream goes on with exactly the same windows after a crash, or on another node.
 *
 * A resampler stands before the samples if the request's rate is another one. `history` has the
 * inputs that it still needs, and `phase` says where between them its next output lies. */
#include "worker/stream_input/cutter.h"

#include <string.h>

#include "proto/wire.h"

#define MAGIC "CNstream"
#define FORMAT 1
#define SAMPLES_MAX (2u * 16777216) /* larger than any window with any request */

void
cn_stream_rest_init(struct cn_stream_rest *rest)
{
    memset(rest, 0, sizeof(*rest));
    cn_buf_init(&rest->history, 0);
    cn_buf_init(&rest->samples, 0);
}

void
cn_stream_rest_fini(struct cn_stream_rest *rest)
{
    cn_buf_fini(&rest->history);
    cn_buf_fini(&rest->samples);
}

/* --- the stored form --- */

void
cn_stream_rest_put(const struct cn_stream_rest *rest, uint32_t to_rate, bool has_state,
                   struct cn_buf *out)
{
    cn_buf_append(out, MAGIC, 8);
    cn_write_u8(out, FORMAT);
    cn_write_u8(out, (uint8_t)rest->format.encoding);
    cn_write_u8(out, (uint8_t)rest->format.channels);
    cn_write_u8(out, has_state);
    cn_write_u32(out, rest->format.rate);
    cn_write_u32(out, to_rate);
    cn_write_u64(out, rest->wav_rest);
    cn_write_u64(out, rest->windows);
    cn_write_u32(out, rest->from_rate);
    cn_write_u32(out, rest->phase);
    cn_write_u32(out, (uint32_t)(rest->history.len / sizeof(float)));
    cn_write_u32(out, (uint32_t)(rest->samples.len / sizeof(float)));
    cn_buf_append_str(out, cn_buf_str(&rest->history));
    cn_buf_append_str(out, cn_buf_str(&rest->samples));
}

static bool
has_rest(struct cn_str state)
{
    return state.len >= 8 && memcmp(state.ptr, MAGIC, 8) == 0;
}

/* What a stored rest consists of. */
struct stored {
    struct cn_stream_rest numbers;
    uint32_t to_rate;
    struct cn_str history, samples;
    bool has_state;
};

/* Reads a rest. Returns false if it is damaged. */
static bool
read_stored(struct cn_reader *reader, struct stored *out)
{
    struct cn_stream_rest *rest = &out->numbers;
    uint32_t n_history, n_samples;
    uint8_t format;

    cn_reader_take(reader, 8);
    format = cn_read_u8(reader);
    rest->format.encoding = (enum cn_stream_encoding)cn_read_u8(reader);
    rest->format.channels = cn_read_u8(reader);
    out->has_state = cn_read_u8(reader);
    rest->format.rate = cn_read_u32(reader);
    out->to_rate = cn_read_u32(reader);
    rest->wav_rest = cn_read_u64(reader);
    rest->windows = cn_read_u64(reader);
    rest->from_rate = cn_read_u32(reader);
    rest->phase = cn_read_u32(reader);
    n_history = cn_read_u32(reader);
    n_samples = cn_read_u32(reader);
    if (reader->bad || format != FORMAT || rest->format.encoding > CN_ENCODING_MULAW ||
        n_history > SAMPLES_MAX || n_samples > SAMPLES_MAX)
        return false;
    out->history = cn_read_bytes(reader, n_history * sizeof(float));
    out->samples = cn_read_bytes(reader, n_samples * sizeof(float));
    return !reader->bad;
}

static bool
is_rate(uint32_t rate)
{
    return rate >= CN_STREAM_RATE_MIN && rate <= CN_STREAM_RATE_MAX;
}

/* Do the numbers make sense together? */
static bool
is_sound(const struct stored *stored)
{
    const struct cn_stream_rest *rest = &stored->numbers;
    struct cn_rates rates;

    if (rest->format.rate && (!is_rate(rest->format.rate) || rest->format.channels < 1 ||
                              rest->format.channels > CN_CHANNELS_MAX))
        return false;
    if (!rest->from_rate)
        return stored->history.len == 0 && rest->phase == 0;
    if (!is_rate(rest->from_rate) || !is_rate(stored->to_rate) ||
        rest->from_rate == stored->to_rate)
        return false;
    cn_rates_init(&rates, rest->from_rate, stored->to_rate);
    return rest->phase < rates.up &&
           stored->history.len <= cn_rates_history_max(&rates) * sizeof(float);
}

/* A state without the magic was written before the model had stream.input: all of it is the
 * handler's. If the model's rate has changed since, the samples are of no use and are dropped, and
 * the handler's state stays. */
int
cn_stream_rest_get(struct cn_stream_rest *rest, uint32_t to_rate, struct cn_str *state,
                   bool *has_state, struct cn_error *err)
{
    struct cn_reader reader;
    struct stored stored = {0};

    cn_stream_rest_init(rest);
    *has_state = true;
    if (!has_rest(*state))
        return 0;
    cn_reader_init(&reader, state->ptr, state->len);
    if (!read_stored(&reader, &stored) || !is_sound(&stored) ||
        (!stored.has_state && cn_reader_left(&reader)))
        return cn_fail(err, CN_E_STATE_DAMAGED,
                       "the stored rest of its stream (stream.input) is damaged");
    *rest = stored.numbers;
    cn_buf_init(&rest->history, 0);
    cn_buf_init(&rest->samples, 0);
    *has_state = stored.has_state;
    *state = cn_read_bytes(&reader, cn_reader_left(&reader));
    if (stored.to_rate != to_rate) {
        rest->from_rate = rest->phase = 0;
        return 0;
    }
    cn_buf_append_str(&rest->history, stored.history);
    cn_buf_append_str(&rest->samples, stored.samples);
    if (!rest->history.failed && !rest->samples.failed)
        return 0;
    cn_stream_rest_fini(rest);
    return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for the rest of its stream");
}

bool
cn_stream_rest_skip(struct cn_str *state)
{
    struct stored stored = {0};
    struct cn_reader reader;

    if (!has_rest(*state))
        return true;
    cn_reader_init(&reader, state->ptr, state->len);
    if (!read_stored(&reader, &stored))
        return true; /* the runtime will say that it cannot read this */
    *state = cn_read_bytes(&reader, cn_reader_left(&reader));
    return stored.has_state;
}

/* --- feeding --- */

static size_t
count(const struct cn_buf *floats)
{
    return floats->len / sizeof(float);
}

static int
no_memory(size_t n, struct cn_error *err)
{
    return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for %zu samples", n);
}

/* Returns room for `n` more floats. The buffer's memory is aligned, and its length a multiple. */
static float *
reserve(struct cn_buf *floats, size_t n)
{
    return (float *)(void *)cn_buf_reserve(floats, n ? n * sizeof(float) : 1);
}

static int
append_zeros(struct cn_buf *floats, size_t n, struct cn_error *err)
{
    float *at = reserve(floats, n);

    if (!at)
        return no_memory(n, err);
    memset(at, 0, n * sizeof(*at));
    floats->len += n * sizeof(*at);
    return 0;
}

/* Runs the resampler over its history, to which new samples were appended. */
static int
convert(struct cn_filters *filters, const struct cn_rates *rates, struct cn_stream_rest *rest,
        bool end, struct cn_error *err)
{
    const size_t n = count(&rest->history);
    const uint64_t most = cn_rates_output_max(rates, n);
    float *out = reserve(&rest->samples, most);
    size_t used;

    if (!out)
        return no_memory(most, err);
    rest->samples.len +=
        sizeof(float) * cn_resample(filters, rates, (const float *)(const void *)rest->history.data,
                                    n, end, &rest->phase, out, &used);
    cn_buf_consume(&rest->history, used * sizeof(float));
    return 0;
}

/* Ends the resampler: the stream ends, or goes on with another rate. */
static int
finish(const struct cn_stream_settings *settings, struct cn_filters *filters,
       struct cn_stream_rest *rest, struct cn_error *err)
{
    struct cn_rates rates;
    int rc;

    if (!rest->from_rate)
        return 0;
    cn_rates_init(&rates, rest->from_rate, settings->otherwise.rate);
    rc = convert(filters, &rates, rest, true, err);
    rest->from_rate = rest->phase = 0;
    cn_buf_fini(&rest->history);
    return rc;
}

/* Appends the samples of a request to `to`. */
static int
read_samples(const struct cn_stream_settings *settings, const struct cn_chunk_source *chunk,
             struct cn_buf *to, struct cn_error *err)
{
    float *at = reserve(to, chunk->n);
    size_t n = chunk->n;
    int rc;

    if (!at)
        return no_memory(chunk->n, err);
    if (chunk->json)
        rc = cn_numbers_read(chunk->bytes, at, chunk->n, &n, err);
    else
        rc = cn_samples_read(chunk->bytes, &chunk->format, settings->nan, at, n, err);
    if (rc == 0)
        to->len += n * sizeof(*at);
    return rc;
}

/* Appends the samples of a request, with a conversion if its rate is another one. */
static int
take_samples(const struct cn_stream_settings *settings, struct cn_filters *filters,
             struct cn_stream_rest *rest, const struct cn_chunk_source *chunk, struct cn_error *err)
{
    const uint32_t to = settings->otherwise.rate, from = chunk->format.rate;
    const bool resamples = settings->kind == CN_STREAM_AUDIO && from != to;
    struct cn_rates rates;
    int rc = 0;

    if (rest->from_rate && rest->from_rate != from)
        rc = finish(settings, filters, rest, err);
    if (rc || !resamples)
        return rc ? rc : read_samples(settings, chunk, &rest->samples, err);
    cn_rates_init(&rates, from, to);
    if (!rest->from_rate) {
        rest->from_rate = from;
        rc = append_zeros(&rest->history, rates.half_width - 1, err);
    }
    if (!rc)
        rc = read_samples(settings, chunk, &rest->history, err);
    return rc ? rc : convert(filters, &rates, rest, false, err);
}

/* A request may end in the middle of a WAV file. Then the next ones bring the rest of it, and what
 * comes behind its samples is not sound. */
static void
follow_wav(struct cn_stream_rest *rest, struct cn_chunk_source *chunk)
{
    const size_t frame = (size_t)cn_sample_bytes(chunk->format.encoding) * chunk->format.channels;

    if (chunk->wav) {
        rest->wav_rest = chunk->wav_rest;
        return;
    }
    if (rest->wav_rest && chunk->bytes.len > rest->wav_rest) {
        chunk->bytes.len = (size_t)rest->wav_rest;
        chunk->n = chunk->bytes.len / frame;
    }
    rest->wav_rest -= rest->wav_rest < chunk->bytes.len ? rest->wav_rest : chunk->bytes.len;
}

uint32_t
cn_cutter_windows(const struct cn_stream_settings *settings, const struct cn_stream_rest *rest)
{
    const size_t n = count(&rest->samples);

    return n < settings->window ? 0 : (uint32_t)((n - settings->window) / settings->hop + 1);
}

/* The rest is kept with each cached sequence, so the room for a whole request is given back. */
static void
shrink(struct cn_buf *buf)
{
    struct cn_buf small;

    if (buf->cap <= 2 * (buf->len + 64 * sizeof(float)))
        return;
    cn_buf_init(&small, 0);
    cn_buf_append_str(&small, cn_buf_str(buf));
    if (small.failed) {
        cn_buf_fini(&small);
        return;
    }
    cn_buf_fini(buf);
    *buf = small;
}

void
cn_cutter_drop(const struct cn_stream_settings *settings, struct cn_stream_rest *rest, uint32_t n)
{
    cn_buf_consume(&rest->samples, (size_t)n * settings->hop * sizeof(float));
    rest->windows += n;
    shrink(&rest->samples);
    shrink(&rest->history);
}

/* Fills the last window with zeros, unless all samples have been in a window. */
static int
pad(const struct cn_stream_settings *settings, struct cn_stream_rest *rest, uint32_t *padding,
    struct cn_error *err)
{
    const uint32_t windows = cn_cutter_windows(settings, rest);
    const size_t left = count(&rest->samples) - (size_t)windows * settings->hop;
    const size_t seen = rest->windows + windows > 0 ? settings->window - settings->hop : 0;

    if (left <= seen)
        return 0;
    *padding = (uint32_t)(settings->window - left);
    return append_zeros(&rest->samples, *padding, err);
}

int
cn_cutter_feed(const struct cn_stream_settings *settings, struct cn_filters *filters,
               struct cn_stream_rest *rest, const struct cn_chunk_source *source, bool end,
               uint32_t *padding, struct cn_error *err)
{
    struct cn_chunk_source chunk = *source;
    int rc = 0;

    *padding = 0;
    if (chunk.part) {
        follow_wav(rest, &chunk);
        rest->format = chunk.format;
        rc = take_samples(settings, filters, rest, &chunk, err);
    }
    if (!rc && end)
        rc = finish(settings, filters, rest, err);
    return rc || !end ? rc : pad(settings, rest, padding, err);
}
