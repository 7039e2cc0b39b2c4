/* worker/stream_input/chunk.c - finds the samples in a request, and how they are written. Any
 * thread.
 *
 * A request says as much about its samples as its client can: a program sets a content type, a
 * browser on a WebSocket sends a WAV header, a v2 client has tensors and parameters. So the format
 * begins as that of the sequence's last request, and each source replaces what it knows, the least
 * certain one first. What is wrong is refused with the value, before any sample is read.
 *
 * The size of the request is checked here, too, before memory for its samples is allocated: their
 * number as they came, and their number after resampling, which may be 384 times as large.
 *
 * From the least certain to the most certain source:
 *   the sequence's last request, or the model's YAML for the first one
 *   the content type          audio/x-pcm; rate=44100; channels=2; encoding=pcm_f32le
 *   parts named rate, channels and encoding
 *   a tensor's datatype       INT16 is pcm_s16le, FP32 is pcm_f32le; with one channel
 *   the header of a WAV file */
#include "worker/stream_input/chunk.h"

#include <inttypes.h>

#include "config/model/model_words.h"
#include "core/text/number.h"
#include "core/text/utf8.h"
#include "proto/tensor.h"
#include "worker/stream_input/wav.h"

#define SHOWN_MAX 60 /* bytes of a client's text in a message */

static struct cn_str
shown(struct cn_str text)
{
    text.len = cn_utf8_cut(text, SHOWN_MAX);
    return text;
}

void
cn_stream_settings_init(struct cn_stream_settings *settings, const struct cn_model_config *config)
{
    *settings = (struct cn_stream_settings){
        .kind = (enum cn_stream_kind)config->stream_input,
        .otherwise = {.encoding = (enum cn_stream_encoding)config->stream_encoding,
                      .rate = config->stream_rate,
                      .channels = 1},
        .window = config->stream_window,
        .hop = config->stream_hop ? config->stream_hop : config->stream_window,
        .chunk_max = config->stream_chunk_max,
        .resample = config->stream_resample,
        .nan = (enum cn_stream_nan)config->stream_nan,
        .answers = (enum cn_stream_answers)config->stream_answers,
    };
    if (settings->kind == CN_STREAM_SERIES)
        settings->otherwise.encoding = CN_ENCODING_PCM_F32LE;
}

/* --- one setting --- */

static struct cn_str
trim(struct cn_str text)
{
    while (text.len && (text.ptr[0] == ' ' || text.ptr[0] == '\t'))
        text = (struct cn_str){text.ptr + 1, text.len - 1};
    while (text.len && (text.ptr[text.len - 1] == ' ' || text.ptr[text.len - 1] == '\t'))
        text.len--;
    if (text.len > 1 && text.ptr[0] == '"' && text.ptr[text.len - 1] == '"')
        text = (struct cn_str){text.ptr + 1, text.len - 2};
    return text;
}

static int
read_number(const char *what, struct cn_str text, uint32_t least, uint32_t most, uint32_t *out,
            struct cn_error *err)
{
    uint64_t value;

    if (!cn_read_uint(text, most, &value) || value < least)
        return cn_fail(err, CN_E_BAD_REQUEST, "%s is '%.*s'; send a number from %u to %u", what,
                       CN_STR_ARG(shown(text)), least, most);
    *out = (uint32_t)value;
    return 0;
}

/* Reads one setting if `name` is one. Others are ignored: they belong to the handler, or to the
 * content type as such. */
static int
read_setting(struct cn_str name, struct cn_str value, struct cn_sound_format *out,
             struct cn_error *err)
{
    char words[96];
    int encoding;

    if (cn_str_eq_nocase(name, CN_STR("rate")))
        return read_number("rate", value, CN_STREAM_RATE_MIN, CN_STREAM_RATE_MAX, &out->rate, err);
    if (cn_str_eq_nocase(name, CN_STR("channels")))
        return read_number("channels", value, 1, CN_CHANNELS_MAX, &out->channels, err);
    if (!cn_str_eq_nocase(name, CN_STR("encoding")))
        return 0;
    encoding = cn_model_word_parse("stream.encoding", value);
    if (encoding < 0)
        return cn_fail(err, CN_E_BAD_REQUEST, "encoding is '%.*s'; send %s",
                       CN_STR_ARG(shown(value)),
                       cn_model_words_text("stream.encoding", " or ", words));
    out->encoding = (enum cn_stream_encoding)encoding;
    return 0;
}

/* Reads "name=value; name=value" behind a content type. */
static int
read_parameters(struct cn_str text, struct cn_sound_format *out, struct cn_error *err)
{
    int rc = 0;

    while (!rc && text.len) {
        const char *semicolon = memchr(text.ptr, ';', text.len), *equals;
        struct cn_str one = {text.ptr, semicolon ? (size_t)(semicolon - text.ptr) : text.len};
        size_t skip = semicolon ? one.len + 1 : one.len;

        equals = one.len ? memchr(one.ptr, '=', one.len) : NULL;
        if (equals) {
            struct cn_str name = {one.ptr, (size_t)(equals - one.ptr)};
            struct cn_str value = {equals + 1, one.len - name.len - 1};

            rc = read_setting(trim(name), trim(value), out, err);
        }
        text = (struct cn_str){text.ptr + skip, text.len - skip};
    }
    return rc;
}

/* --- content types --- */

static bool
is_audio(struct cn_str mime)
{
    return mime.len >= 6 && cn_str_eq_nocase((struct cn_str){mime.ptr, 6}, CN_STR("audio/"));
}

/* Reads a content type: names of raw samples with parameters, names of WAV files. Types that are
 * not of sound say nothing. */
static int
read_type(struct cn_str type, struct cn_sound_format *out, struct cn_error *err)
{
    static const char *const raw[] = {"audio/x-pcm", "audio/pcm",  "audio/raw",     "audio/wav",
                                      "audio/x-wav", "audio/wave", "audio/vnd.wave"};
    static const char *const mulaw[] = {"audio/basic", "audio/pcmu", "audio/x-mulaw"};
    const char *semicolon = type.len ? memchr(type.ptr, ';', type.len) : NULL;
    struct cn_str mime = {type.ptr, semicolon ? (size_t)(semicolon - type.ptr) : type.len};
    struct cn_str rest = {mime.ptr ? mime.ptr + mime.len : NULL, type.len - mime.len};

    mime = trim(mime);
    if (!is_audio(mime))
        return 0;
    for (size_t i = 0; i < sizeof(raw) / sizeof(raw[0]); i++)
        if (cn_str_eq_nocase(mime, cn_str_from(raw[i])))
            return read_parameters(rest, out, err);
    for (size_t i = 0; i < sizeof(mulaw) / sizeof(mulaw[0]); i++)
        if (cn_str_eq_nocase(mime, cn_str_from(mulaw[i]))) {
            *out = (struct cn_sound_format){CN_ENCODING_MULAW, 8000, 1};
            return read_parameters(rest, out, err);
        }
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "the content type %.*s is not supported; send raw samples (audio/x-pcm; "
                   "rate=16000; encoding=pcm_s16le) or a WAV file",
                   CN_STR_ARG(shown(mime)));
}

/* The content type of the samples. A part has none of its own, or one without parameters, when the
 * whole request is the sound. */
static struct cn_str
type_of(const struct cn_row *row, const struct cn_part *part)
{
    for (uint32_t i = 0; i < row->n_headers; i++)
        if (cn_str_eq_nocase(row->headers[i].name, CN_STR("content-type")) &&
            is_audio(row->headers[i].value))
            return row->headers[i].value;
    return part->content_type;
}

static int
read_parts(const struct cn_row *row, const struct cn_part *samples, struct cn_sound_format *out,
           struct cn_error *err)
{
    struct cn_tensor tensor;
    int rc = 0;

    for (uint32_t i = 0; !rc && i < row->n_parts; i++) {
        const struct cn_part *part = &row->parts[i];

        if (part != samples && !cn_tensor_of_part(part, &tensor))
            rc = read_setting(part->name, trim(part->data), out, err);
    }
    return rc;
}

/* --- the samples --- */

static const struct cn_part *
find_part(const struct cn_row *row, struct cn_str input)
{
    const struct cn_part *part = input.len ? cn_row_part(row, input) : NULL;

    if (!part && !input.len)
        part = cn_row_part(row, CN_STR("body"));
    if (!part && !input.len)
        part = cn_row_part(row, CN_STR("data"));
    return part || input.len || row->n_parts != 1 ? part : &row->parts[0];
}

/* A tensor of numbers says how its samples are written. One of bytes has what a body would have. */
static int
read_tensor(enum cn_stream_kind kind, const struct cn_tensor *tensor, struct cn_chunk_source *out,
            bool *raw, struct cn_error *err)
{
    struct cn_reader reader;
    struct cn_str more;

    *raw = false;
    out->bytes = tensor->data;
    switch (tensor->type) {
    case CN_DATATYPE_INT16:
        out->format.encoding = CN_ENCODING_PCM_S16LE;
        out->format.channels = 1;
        if (kind == CN_STREAM_SERIES)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "the tensor of numbers is INT16, which means sound; send FP32");
        return 0;
    case CN_DATATYPE_FP32:
        out->format.encoding = CN_ENCODING_PCM_F32LE;
        out->format.channels = 1;
        return 0;
    case CN_DATATYPE_UINT8:
        *raw = true;
        return 0;
    case CN_DATATYPE_BYTES:
        *raw = true;
        cn_reader_init(&reader, tensor->data.ptr, tensor->data.len);
        out->bytes = CN_STR("");
        if (!cn_tensor_next(&reader, &out->bytes) || !cn_tensor_next(&reader, &more))
            return 0;
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the tensor of samples has several elements of BYTES; send one");
    default:
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the tensor of samples is %s; send INT16, FP32, UINT8 or BYTES",
                       cn_datatype_word(tensor->type));
    }
}

static int
read_wav(struct cn_chunk_source *out, struct cn_error *err)
{
    struct cn_wav wav;
    uint64_t left;
    int rc = cn_wav_read(out->bytes, &wav, err);

    if (rc != 0)
        return rc;
    if (wav.format.rate < CN_STREAM_RATE_MIN || wav.format.rate > CN_STREAM_RATE_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the WAV file has a rate of %u Hz; send a rate from %d to %d",
                       wav.format.rate, CN_STREAM_RATE_MIN, CN_STREAM_RATE_MAX);
    if (wav.format.channels < 1 || wav.format.channels > CN_CHANNELS_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST, "the WAV file has %u channels; send 1 to %d",
                       wav.format.channels, CN_CHANNELS_MAX);
    out->wav = true;
    out->format = wav.format;
    out->bytes = (struct cn_str){out->bytes.ptr + wav.data_at, out->bytes.len - wav.data_at};
    left = out->bytes.len;
    if (wav.data_bytes != UINT64_MAX && wav.data_bytes < left)
        out->bytes.len = (size_t)wav.data_bytes; /* chunks behind the samples are not sound */
    else if (wav.data_bytes != UINT64_MAX)
        out->wav_rest = wav.data_bytes - left;
    return 0;
}

/* Counts the samples, which must be whole ones. */
static int
count(const struct cn_stream_settings *settings, struct cn_chunk_source *out, struct cn_error *err)
{
    const unsigned one = cn_sample_bytes(out->format.encoding);
    const size_t frame = (size_t)one * out->format.channels;

    if (out->json)
        return cn_numbers_read(out->bytes, NULL, settings->chunk_max, &out->n, err);
    if (out->bytes.len % frame)
        return cn_fail(
            err, CN_E_BAD_REQUEST,
            "the samples have %zu bytes, which is not a multiple of %zu (%s, %u %s); send "
            "whole samples, and keep what is left for the next request",
            out->bytes.len, frame, cn_model_words("stream.encoding")[out->format.encoding],
            out->format.channels, out->format.channels == 1 ? "channel" : "channels");
    out->n = out->bytes.len / frame;
    if (out->n > settings->chunk_max)
        return cn_fail(err, CN_E_TOO_LARGE,
                       "the request has %zu samples; at most %u are allowed "
                       "(stream.maxChunkSamples), so send them in several requests",
                       out->n, settings->chunk_max);
    return 0;
}

static int
check_rate(const struct cn_stream_settings *settings, const struct cn_chunk_source *chunk,
           struct cn_error *err)
{
    const uint32_t to = settings->otherwise.rate;
    uint64_t made;

    if (settings->kind == CN_STREAM_SERIES || chunk->format.rate == to)
        return 0;
    if (!settings->resample)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the samples have a rate of %u Hz, but the model takes %u Hz and does not "
                       "resample (stream.resample: false)",
                       chunk->format.rate, to);
    made = (uint64_t)chunk->n * to / chunk->format.rate;
    if (made > settings->chunk_max)
        return cn_fail(err, CN_E_TOO_LARGE,
                       "the request's %zu samples of %u Hz become %" PRIu64
                       " of %u Hz; at most %u are allowed (stream.maxChunkSamples), so send them "
                       "in several requests",
                       chunk->n, chunk->format.rate, made, to, settings->chunk_max);
    return 0;
}

/* Reads what a body, or a tensor of bytes, says about itself. */
static int
read_raw(const struct cn_stream_settings *settings, struct cn_str type, struct cn_chunk_source *out,
         struct cn_error *err)
{
    const bool audio = settings->kind == CN_STREAM_AUDIO;

    if (cn_str_begins_nocase(type, CN_STR("application/json")) && audio)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the request is JSON; send samples as bytes (audio/x-pcm; rate=16000) or a "
                       "WAV file");
    out->json = cn_str_begins_nocase(type, CN_STR("application/json"));
    return audio && cn_wav_begins(out->bytes) ? read_wav(out, err) : 0;
}

int
cn_chunk_find(const struct cn_stream_settings *settings, const struct cn_row *row,
              struct cn_str input, const struct cn_sound_format *before,
              struct cn_chunk_source *out, struct cn_error *err)
{
    struct cn_tensor tensor;
    struct cn_str type;
    bool raw = true;
    int rc = 0;

    *out = (struct cn_chunk_source){.part = find_part(row, input), .format = *before};
    if (!out->part)
        return 0;
    out->bytes = out->part->data;
    type = type_of(row, out->part);
    if (settings->kind == CN_STREAM_AUDIO) {
        rc = read_type(type, &out->format, err);
        if (!rc)
            rc = read_parts(row, out->part, &out->format, err);
    }
    if (!rc && cn_tensor_of_part(out->part, &tensor)) {
        rc = read_tensor(settings->kind, &tensor, out, &raw, err);
        type = input.len ? CN_STR("") : type; /* JSON then stands for the tensor around it */
    }
    if (!rc && raw)
        rc = read_raw(settings, type, out, err);
    if (!rc)
        rc = count(settings, out, err);
    return rc ? rc : check_rate(settings, out, err);
}
