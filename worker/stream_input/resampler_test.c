/* worker/stream_input/resampler_test.c - tests that sound keeps its shape when its sampling rate
 * changes, and that the pieces in which it comes do not matter. */
#include "worker/stream_input/resampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/memory/mem.h"

static const double pi = 3.14159265358979323846;

static struct cn_filters *filters;

/* Converts a tone in pieces of `piece` samples (0: in one), and returns the number of samples. */
static size_t
convert_tone(uint32_t from, uint32_t to, double hz, size_t n, size_t piece, float **out)
{
    struct cn_rates rates;
    size_t have, made = 0, done = 0, used;
    uint32_t phase = 0;
    float *in;

    cn_rates_init(&rates, from, to);
    in = cn_alloc((n + 2 * cn_rates_history_max(&rates) + 1) * sizeof(*in));
    *out = cn_alloc((cn_rates_output_max(&rates, n) + 100) * sizeof(**out));
    have = rates.half_width - 1; /* zeros */
    while (done < n) {
        size_t take = piece && piece < n - done ? piece : n - done;

        for (size_t i = 0; i < take; i++)
            in[have++] = (float)sin(2 * pi * hz * (double)(done + i) / from);
        done += take;
        made += cn_resample(filters, &rates, in, have, false, &phase, *out + made, &used);
        have -= used;
        memmove(in, in + used, have * sizeof(*in));
        assert_true(have <= cn_rates_history_max(&rates));
    }
    made += cn_resample(filters, &rates, in, have, true, &phase, *out + made, &used);
    assert_int_equal(used, have);
    cn_free(in);
    return made;
}

/* The largest difference to the tone itself, away from its two ends. */
static double
error_of(const float *out, size_t n, uint32_t rate, double hz, size_t edge)
{
    double worst = 0;

    for (size_t i = edge; i + edge < n; i++)
        worst = fmax(worst, fabs((double)out[i] - sin(2 * pi * hz * (double)i / rate)));
    return worst;
}

static const uint32_t pairs[][2] = {{8000, 16000},  {44100, 16000}, {48000, 16000}, {22050, 16000},
                                    {44101, 16000}, {16000, 44100}, {11025, 48000}, {96000, 8000}};

/* What the model hears is what was recorded: each sample is where it was in time. */
static void
a_tone_stays_the_same_tone(void **state)
{
    (void)state;
    for (size_t p = 0; p < sizeof(pairs) / sizeof(pairs[0]); p++) {
        const uint32_t from = pairs[p][0], to = pairs[p][1];
        float *out;
        size_t n = convert_tone(from, to, 700, from / 2, 0, &out);

        assert_int_equal(n, ((uint64_t)(from / 2) * to + from - 1) / from);
        assert_true(error_of(out, n, to, 700, 100) < 0.001);
        cn_free(out);
    }
}

/* A tone that the lower rate cannot carry must vanish, or it would be heard as another one. */
static void
a_tone_that_is_too_high_vanishes(void **state)
{
    float *out;
    size_t n = convert_tone(48000, 16000, 11000, 48000, 0, &out);
    double worst = 0;

    (void)state;
    for (size_t i = 100; i + 100 < n; i++)
        worst = fmax(worst, fabs((double)out[i]));
    assert_true(worst < 0.001);
    cn_free(out);
}

/* A client chooses its pieces as it likes, and a worker may die between two of them: the result is
 * the same to the last bit. */
static void
pieces_do_not_matter(void **state)
{
    static const size_t pieces[] = {1, 7, 160, 999, 10000};

    (void)state;
    for (size_t p = 0; p < sizeof(pairs) / sizeof(pairs[0]); p++) {
        float *whole, *cut;
        size_t n = convert_tone(pairs[p][0], pairs[p][1], 440, 12000, 0, &whole);

        for (size_t k = 0; k < sizeof(pieces) / sizeof(pieces[0]); k++) {
            assert_int_equal(convert_tone(pairs[p][0], pairs[p][1], 440, 12000, pieces[k], &cut),
                             n);
            assert_memory_equal(cut, whole, n * sizeof(*cut));
            cn_free(cut);
        }
        cn_free(whole);
    }
}

/* What is remembered stays small even for the strangest pair of rates. */
static void
the_history_is_bounded(void **state)
{
    struct cn_rates rates;

    (void)state;
    cn_rates_init(&rates, 48000, 16000);
    assert_int_equal(cn_rates_history_max(&rates), 109);
    cn_rates_init(&rates, 384000, 1000);
    assert_true(cn_rates_history_max(&rates) < 13700);
    cn_rates_init(&rates, 1000, 384000);
    assert_true(cn_rates_history_max(&rates) < 40);
}

static int
set_up(void **state)
{
    (void)state;
    filters = cn_filters_create();
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
        cmocka_unit_test(a_tone_stays_the_same_tone),
        cmocka_unit_test(a_tone_that_is_too_high_vanishes),
        cmocka_unit_test(pieces_do_not_matter),
        cmocka_unit_test(the_history_is_bounded),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
