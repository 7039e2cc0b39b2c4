/* worker/stream_input/cutter_test.c - tests that a stream gives the same windows however it is cut
 * into requests, and wherever its rest has been in between. */
#include "worker/stream_input/cutter.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/memory/mem.h"

#define N 6000

static struct cn_filters *filters;
static int16_t sound[N];

static struct cn_stream_settings
settings(uint32_t window, uint32_t hop)
{
    return (struct cn_stream_settings){.kind = CN_STREAM_AUDIO,
                                       .otherwise = {CN_ENCODING_PCM_S16LE, 16000, 1},
                                       .window = window,
                                       .hop = hop,
                                       .chunk_max = 1 << 20,
                                       .resample = true};
}

/* Appends the windows of a request to `out`. */
static void
feed(const struct cn_stream_settings *set, struct cn_stream_rest *rest, uint32_t rate, size_t from,
     size_t n, bool end, struct cn_buf *out)
{
    static const struct cn_part part;
    const struct cn_chunk_source chunk = {.part = &part,
                                          .bytes = {(const char *)(sound + from), 2 * n},
                                          .format = {CN_ENCODING_PCM_S16LE, rate, 1},
                                          .n = n};
    uint32_t padding, windows;

    assert_int_equal(cn_cutter_feed(set, filters, rest, &chunk, end, &padding, NULL), 0);
    windows = cn_cutter_windows(set, rest);
    for (uint32_t i = 0; i < windows; i++)
        cn_buf_append(out, rest->samples.data + (size_t)i * set->hop * sizeof(float),
                      set->window * sizeof(float));
    cn_cutter_drop(set, rest, windows);
}

/* Stores the rest and reads it again, as a worker does that takes over. */
static void
move(struct cn_stream_rest *rest, uint32_t to_rate)
{
    struct cn_str state;
    struct cn_buf bytes;
    bool has_state;

    cn_buf_init(&bytes, 0);
    cn_stream_rest_put(rest, to_rate, true, &bytes);
    cn_buf_puts(&bytes, "the handler's");
    cn_stream_rest_fini(rest);
    state = cn_buf_str(&bytes);
    assert_int_equal(cn_stream_rest_get(rest, to_rate, &state, &has_state, NULL), 0);
    assert_true(has_state && cn_str_eq(state, CN_STR("the handler's")));
    cn_buf_fini(&bytes);
}

static void
stream(const struct cn_stream_settings *set, uint32_t rate, unsigned seed, bool moves,
       struct cn_buf *out)
{
    struct cn_stream_rest rest;

    cn_buf_init(out, 0);
    cn_stream_rest_init(&rest);
    for (size_t at = 0, n; at < N; at += n) {
        n = seed ? 1 + (size_t)(rand_r(&seed) % 900) : N;
        n = n < N - at ? n : N - at;
        feed(set, &rest, rate, at, n, at + n == N, out);
        if (moves)
            move(&rest, set->otherwise.rate);
    }
    cn_stream_rest_fini(&rest);
}

/* This is the promise of stream.input: neither the size of the requests nor a change of the worker
 * after each of them can be seen in a single bit. */
static void
requests_and_moves_do_not_matter(void **state)
{
    static const uint32_t rates[] = {16000, 8000, 44100, 48000, 44101};
    static const uint32_t hops[] = {512, 160, 1};

    (void)state;
    for (size_t r = 0; r < sizeof(rates) / sizeof(rates[0]); r++)
        for (size_t h = 0; h < sizeof(hops) / sizeof(hops[0]); h++) {
            const struct cn_stream_settings set = settings(512, hops[h]);
            struct cn_buf whole, cut;

            stream(&set, rates[r], 0, false, &whole);
            assert_true(whole.len > 0);
            for (unsigned seed = 1; seed < 4; seed++) {
                stream(&set, rates[r], seed, seed > 1, &cut);
                assert_int_equal(cut.len, whole.len);
                assert_memory_equal(cut.data, whole.data, whole.len);
                cn_buf_fini(&cut);
            }
            cn_buf_fini(&whole);
        }
}

/* At the end each sample has been in a window, and zeros fill the last one. */
static void
the_end_is_filled_with_zeros(void **state)
{
    const struct cn_stream_settings set = settings(1000, 1000);
    struct cn_stream_rest rest;
    struct cn_buf out;
    const float *samples;

    (void)state;
    cn_stream_rest_init(&rest);
    cn_buf_init(&out, 0);
    feed(&set, &rest, 16000, 0, 1001, true, &out);
    assert_int_equal(out.len, 2000 * sizeof(float));
    samples = (const float *)(const void *)out.data;
    assert_true(samples[1000] == (float)sound[1000] / 32768.0f && samples[1001] == 0);
    cn_stream_rest_fini(&rest);
    cn_buf_reset(&out);
    cn_stream_rest_init(&rest);
    feed(&set, &rest, 16000, 0, 1000, true, &out);
    assert_int_equal(out.len, 1000 * sizeof(float));
    cn_stream_rest_fini(&rest);
    cn_buf_fini(&out);
}

/* A client may change its rate in the middle: what came before is heard to its end. */
static void
the_rate_may_change(void **state)
{
    const struct cn_stream_settings set = settings(160, 160);
    struct cn_stream_rest rest;
    struct cn_buf out;

    (void)state;
    cn_stream_rest_init(&rest);
    cn_buf_init(&out, 0);
    feed(&set, &rest, 8000, 0, 800, false, &out);  /* 1600 */
    feed(&set, &rest, 16000, 0, 800, false, &out); /* 800 */
    feed(&set, &rest, 48000, 0, 2400, true, &out); /* 800 */
    assert_int_equal(out.len, 3200 * sizeof(float));
    cn_stream_rest_fini(&rest);
    cn_buf_fini(&out);
}

/* A version without stream.input, or with another rate, may take over a sequence. */
static void
other_versions_find_the_handlers_state(void **state)
{
    const struct cn_stream_settings set = settings(512, 512);
    struct cn_stream_rest rest, other;
    struct cn_buf bytes, out;
    struct cn_str text;
    bool has_state;

    (void)state;
    cn_stream_rest_init(&rest);
    cn_buf_init(&bytes, 0);
    cn_buf_init(&out, 0);
    feed(&set, &rest, 8000, 0, 100, false, &out);
    cn_stream_rest_put(&rest, 16000, false, &bytes);
    text = cn_buf_str(&bytes);
    assert_false(cn_stream_rest_skip(&text));
    cn_buf_reset(&bytes);
    cn_stream_rest_put(&rest, 16000, true, &bytes);
    cn_buf_puts(&bytes, "own");
    text = cn_buf_str(&bytes);
    assert_true(cn_stream_rest_skip(&text) && cn_str_eq(text, CN_STR("own")));
    text = cn_buf_str(&bytes);
    assert_int_equal(cn_stream_rest_get(&other, 8000, &text, &has_state, NULL), 0);
    assert_true(has_state && other.samples.len == 0 && other.from_rate == 0);
    assert_true(cn_str_eq(text, CN_STR("own")));
    cn_stream_rest_fini(&other);
    text = CN_STR("a state of a version without streams");
    assert_int_equal(cn_stream_rest_get(&other, 8000, &text, &has_state, NULL), 0);
    assert_true(has_state && text.len == 36);
    cn_stream_rest_fini(&other);
    cn_stream_rest_fini(&rest);
    cn_buf_fini(&bytes);
    cn_buf_fini(&out);
}

/* What a sequence keeps is bounded: its window and the resampler's inputs, and no request. */
static void
the_rest_is_small(void **state)
{
    const struct cn_stream_settings set = settings(512, 160);
    struct cn_stream_rest rest;
    struct cn_buf out;

    (void)state;
    cn_stream_rest_init(&rest);
    cn_buf_init(&out, 0);
    feed(&set, &rest, 48000, 0, N, false, &out);
    assert_true(rest.samples.len < 512 * sizeof(float));
    assert_true(rest.history.len <= 109 * sizeof(float));
    assert_true(rest.samples.cap + rest.history.cap <= 8192);
    cn_stream_rest_fini(&rest);
    cn_buf_fini(&out);
}

static int
set_up(void **state)
{
    (void)state;
    filters = cn_filters_create();
    for (int i = 0; i < N; i++)
        sound[i] = (int16_t)(9000 * sin(i * 0.05) + 3000 * sin(i * 0.31));
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    cn_filters_destroy(filters);
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_and_moves_do_not_matter),
        cmocka_unit_test(the_end_is_filled_with_zeros),
        cmocka_unit_test(the_rate_may_change),
        cmocka_unit_test(other_versions_find_the_handlers_state),
        cmocka_unit_test(the_rest_is_small),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
