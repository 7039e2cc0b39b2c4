/* worker/stream_input/resampler.c - a windowed sinc filter between any two sampling rates. Worker's
 * thread.
 *
 * Output n lies at n * down / up between the input samples. Its value is the sum of the inputs
 * around that place, each times h(distance): a sinc that lets pass what both rates can carry,
 * multiplied by a Kaiser window that makes it end after ZEROS zero crossings. There are `up`
 * different places between two inputs (phases), and each has its own row of coefficients.
 *
 * For usual pairs of rates the rows of all phases are computed once (44.1 kHz to 16 kHz: 160 rows
 * of 100). For 44,101 to 16,000 with 16,000 phases that would need too much memory, so coefficients
 * are computed where they are needed. Both ways give the same bits.
 */
#include "worker/stream_input/resampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/memory/mem.h"

#define ZEROS 16        /* zero crossings of the sinc to either side */
#define ROLLOFF 0.9     /* the part of the band that passes unchanged */
#define KAISER_BETA 8.0 /* 80 dB below the signal, with the two numbers above */
#define STEPS 512       /* values of h between two zero crossings; others are interpolated */
#define N_VALUES (ZEROS * STEPS + 2)
#define BANKS 4                    /* pairs of rates whose rows are kept */
#define BANK_MAX_VALUES (1u << 17) /* values in all rows of a pair */

/* The rows of all phases of one pair of rates. */
struct bank {
    uint32_t from, to; /* from 0: unused */
    float *rows;       /* `up` rows of 2 * half_width */
};

struct cn_filters {
    double h[N_VALUES]; /* h at i / STEPS zero crossings */
    struct bank banks[BANKS];
    unsigned oldest; /* the bank that is replaced next */
    float *row;      /* for a pair without rows */
    size_t row_cap;
};

static double
bessel_i0(double x)
{
    double sum = 1, term = 1;

    for (int k = 1; k < 60; k++) {
        term *= (x / 2 / k) * (x / 2 / k);
        sum += term;
    }
    return sum;
}

struct cn_filters *
cn_filters_create(void)
{
    struct cn_filters *filters = cn_alloc(sizeof(*filters));
    const double pi = acos(-1.0), whole = bessel_i0(KAISER_BETA);

    for (int i = 0; i < ZEROS * STEPS; i++) {
        const double at = (double)i / STEPS, edge = at / ZEROS;
        const double window = bessel_i0(KAISER_BETA * sqrt(1 - edge * edge)) / whole;

        filters->h[i] = window * (i == 0 ? 1.0 : sin(pi * at) / (pi * at));
    }
    return filters; /* the last values are 0 */
}

void
cn_filters_destroy(struct cn_filters *filters)
{
    if (!filters)
        return;
    for (unsigned i = 0; i < BANKS; i++)
        cn_free(filters->banks[i].rows);
    cn_free(filters->row);
    cn_free(filters);
}

/* --- rates --- */

static uint32_t
common_divisor(uint32_t a, uint32_t b)
{
    while (b) {
        const uint32_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* Zero crossings of the sinc in the time of one input sample. */
static double
crossings(const struct cn_rates *rates)
{
    return ROLLOFF * (rates->to < rates->from ? (double)rates->to / rates->from : 1.0);
}

void
cn_rates_init(struct cn_rates *rates, uint32_t from, uint32_t to)
{
    const uint32_t divisor = common_divisor(from, to);

    rates->from = from;
    rates->to = to;
    rates->up = to / divisor;
    rates->down = from / divisor;
    rates->half_width = (uint32_t)ceil(ZEROS / crossings(rates)) + 1;
}

size_t
cn_rates_history_max(const struct cn_rates *rates)
{
    return 2 * (size_t)rates->half_width - 1;
}

uint64_t
cn_rates_output_max(const struct cn_rates *rates, uint64_t n)
{
    return (n + cn_rates_history_max(rates)) * rates->to / rates->from + 2;
}

/* --- coefficients --- */

/* Writes the coefficients of the inputs around an output that lies phase / up behind an input. */
static void
write_row(const struct cn_filters *filters, const struct cn_rates *rates, uint32_t phase,
          float *row)
{
    const double scale = crossings(rates), behind = (double)phase / rates->up;
    const int half = (int)rates->half_width;

    for (int k = 0; k < 2 * half; k++) {
        const double at = fabs(k - (half - 1) - behind) * scale * STEPS;
        const size_t i = (size_t)at;

        row[k] = 0;
        if (i < N_VALUES - 1)
            row[k] = (float)(scale * (filters->h[i] +
                                      (at - (double)i) * (filters->h[i + 1] - filters->h[i])));
    }
}

/* Returns the rows of this pair; NULL: there are too many, or there is no memory for them. */
static const float *
find_rows(struct cn_filters *filters, const struct cn_rates *rates)
{
    const uint64_t width = 2 * (uint64_t)rates->half_width, n = width * rates->up;
    struct bank *bank;
    float *rows;

    for (unsigned i = 0; i < BANKS; i++)
        if (filters->banks[i].from == rates->from && filters->banks[i].to == rates->to)
            return filters->banks[i].rows;
    rows = n <= BANK_MAX_VALUES ? cn_try_alloc(n * sizeof(*rows)) : NULL;
    if (!rows)
        return NULL;
    for (uint32_t phase = 0; phase < rates->up; phase++)
        write_row(filters, rates, phase, rows + phase * width);
    bank = &filters->banks[filters->oldest];
    filters->oldest = (filters->oldest + 1) % BANKS;
    cn_free(bank->rows);
    *bank = (struct bank){rates->from, rates->to, rows};
    return rows;
}

static float *
row_room(struct cn_filters *filters, size_t width)
{
    if (width <= filters->row_cap)
        return filters->row;
    cn_free(filters->row);
    filters->row = cn_alloc(width * sizeof(*filters->row)); /* at most 54 KB: 384 kHz to 1 kHz */
    filters->row_cap = width;
    return filters->row;
}

/* --- conversion --- */

/* The sum of n products, n being even. The order of the additions is fixed. Inputs behind `left`
 * are zeros. */
static float
weigh(const float *row, const float *in, size_t n, size_t left)
{
    double a = 0, b = 0;
    size_t i = 0;

    if (left < n)
        n = left;
    for (; i + 1 < n; i += 2) {
        a += (double)row[i] * (double)in[i];
        b += (double)row[i + 1] * (double)in[i + 1];
    }
    if (i < n)
        a += (double)row[i] * (double)in[i];
    a += b; /* samples near the largest float could exceed it */
    return a > (double)FLT_MAX ? FLT_MAX : a < -(double)FLT_MAX ? -FLT_MAX : (float)a;
}

size_t
cn_resample(struct cn_filters *filters, const struct cn_rates *rates, const float *in, size_t n,
            bool end, uint32_t *phase, float *out, size_t *used)
{
    const size_t width = 2 * (size_t)rates->half_width;
    /* An output is computed when all its inputs are there, or at the end when the input before it
     * is. */
    const size_t needed = end ? rates->half_width : width;
    const float *rows = find_rows(filters, rates);
    float *row = rows ? NULL : row_room(filters, width);
    size_t at = 0, made = 0;
    uint64_t next;

    while (at + needed <= n) {
        if (!rows)
            write_row(filters, rates, *phase, row);
        out[made++] = weigh(rows ? rows + *phase * width : row, in + at, width, n - at);
        next = (uint64_t)*phase + rates->down;
        at += next / rates->up;
        *phase = (uint32_t)(next % rates->up);
    }
    *used = end || at > n ? n : at;
    return made;
}
