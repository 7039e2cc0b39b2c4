/* cn_fuzz: core proto config store handlers worker */
/* tests/fuzz/stream_chunk_fuzz.c - any requests of a stream, one after the other, and any stored
 * rest.
 *
 * The first bytes choose the model's settings. Each request then has a byte for its flags, the
 * length and text of its content type, and the length and bytes of its samples. After each request
 * the rest is stored and read again: it must be the same, and within its bounds. */
#include <string.h>

#include "core/errors/panic.h"
#include "proto/wire.h"
#include "tests/fuzz/fuzz.h"
#include "worker/stream_input/cutter.h"

#define CHUNK_MAX 5000

static struct cn_filters *filters;

/* Stores the rest and reads it again. */
static void
store(const struct cn_stream_settings *settings, struct cn_stream_rest *rest)
{
    struct cn_stream_rest back;
    struct cn_buf bytes;
    struct cn_str state;
    bool has_state;

    cn_buf_init(&bytes, 0);
    cn_stream_rest_put(rest, settings->otherwise.rate, true, &bytes);
    state = cn_buf_str(&bytes);
    cn_assert(cn_stream_rest_get(&back, settings->otherwise.rate, &state, &has_state, NULL) == 0);
    cn_assert(has_state && state.len == 0 && back.windows == rest->windows &&
              back.phase == rest->phase && back.from_rate == rest->from_rate);
    cn_assert(cn_str_eq(cn_buf_str(&back.samples), cn_buf_str(&rest->samples)));
    cn_assert(cn_str_eq(cn_buf_str(&back.history), cn_buf_str(&rest->history)));
    cn_stream_rest_fini(rest);
    *rest = back;
    cn_buf_fini(&bytes);
}

/* Gives one request to the cutter. Returns false if it was refused: its sequence then goes on from
 * what was stored before, which is not what this target looks at. */
static bool
request(const struct cn_stream_settings *settings, struct cn_stream_rest *rest,
        struct cn_reader *reader)
{
    const unsigned flags = cn_read_u8(reader);
    const struct cn_str type = cn_read_bytes(reader, cn_read_u8(reader));
    const struct cn_str samples = cn_read_str16(reader);
    struct cn_header header = {CN_STR("Content-Type"), type};
    struct cn_part parts[] = {{CN_STR("body"), type, samples},
                              {CN_STR("rate"), CN_STR("parameter/int64"), type}};
    const struct cn_row row = {
        .n_headers = flags & 1, .headers = &header, .n_parts = flags & 2 ? 2 : 1, .parts = parts};
    const struct cn_sound_format before = rest->format.rate ? rest->format : settings->otherwise;
    struct cn_chunk_source chunk;
    struct cn_error err = {0};
    uint32_t padding, windows;
    int rc = cn_chunk_find(settings, &row, CN_STR(""), &before, &chunk, &err);

    if (rc == 0)
        rc = cn_cutter_feed(settings, filters, rest, &chunk, flags & 4, &padding, &err);
    if (rc != 0) {
        cn_assert((rc == CN_E_BAD_REQUEST || rc == CN_E_TOO_LARGE) && err.message[0]);
        return false;
    }
    windows = cn_cutter_windows(settings, rest);
    cn_assert(padding == 0 || windows > 0);
    cn_cutter_drop(settings, rest, windows);
    cn_assert(rest->samples.len < settings->window * sizeof(float));
    return true;
}

static void
read_rest(struct cn_str state)
{
    struct cn_stream_rest rest;
    struct cn_str copy = state;
    struct cn_error err = {0};
    bool has_state;

    cn_stream_rest_skip(&copy);
    cn_assert(copy.len <= state.len);
    if (cn_stream_rest_get(&rest, 16000, &state, &has_state, &err) == 0)
        cn_stream_rest_fini(&rest);
    else
        cn_assert(err.code == CN_E_STATE_DAMAGED);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_stream_settings settings = {.otherwise = {.channels = 1}, .chunk_max = CHUNK_MAX};
    struct cn_stream_rest rest;
    struct cn_reader reader;

    if (!filters)
        filters = cn_filters_create();
    read_rest((struct cn_str){(const char *)data, size});
    cn_reader_init(&reader, data, size);
    settings.kind = cn_read_u8(&reader) % 2 ? CN_STREAM_SERIES : CN_STREAM_AUDIO;
    settings.otherwise.encoding = (enum cn_stream_encoding)(cn_read_u8(&reader) % 3);
    settings.otherwise.rate = 1000 + cn_read_u16(&reader);
    settings.window = 1 + cn_read_u16(&reader) % 1000;
    settings.hop = 1 + cn_read_u16(&reader) % settings.window;
    settings.resample = true;
    settings.nan = (enum cn_stream_nan)(cn_read_u8(&reader) % 2);
    cn_stream_rest_init(&rest);
    while (!reader.bad && cn_reader_left(&reader) && request(&settings, &rest, &reader))
        store(&settings, &rest);
    cn_stream_rest_fini(&rest);
    return 0;
}
