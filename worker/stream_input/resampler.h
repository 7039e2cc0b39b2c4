/* worker/stream_input/resampler.h - converts sound from one sampling rate to another, piece by
 * piece. Worker's thread.
 *
 * The result does not depend on how the sound is cut into pieces, not even in its last bit: each
 * sample of the result is computed from the same samples in the same order. All that a resampler
 * remembers between two pieces are its last input samples and the place of its next output between
 * two of them. So it can be stored, and goes on in another process as if nothing had happened
 * (decision 0044).
 */
#ifndef CN_WORKER_STREAM_INPUT_RESAMPLER_H
#define CN_WORKER_STREAM_INPUT_RESAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Computes and keeps filters. One is shared by all sequences of a worker. */
struct cn_filters;
struct cn_filters *cn_filters_create(void);
void cn_filters_destroy(struct cn_filters *filters);

/* The conversion from one rate to another. */
struct cn_rates {
    uint32_t from, to;   /* Hz, 1,000 to 384,000; they differ */
    uint32_t up, down;   /* to / from as a fraction in lowest terms */
    uint32_t half_width; /* an output depends on this number of inputs to either side */
};
void cn_rates_init(struct cn_rates *rates, uint32_t from, uint32_t to);
/* Returns how many input samples are remembered at most. */
size_t cn_rates_history_max(const struct cn_rates *rates);
/* Returns the most output samples of a call with `n` input samples. */
uint64_t cn_rates_output_max(const struct cn_rates *rates, uint64_t n);

/* Converts as much of `in` as can be converted. `in` begins with the samples that the last call has
 * left; at the very beginning these are half_width - 1 zeros. `phase` is 0 at the beginning, and
 * then kept by the caller. Writes at most cn_rates_output_max() samples, returns their number, and
 * sets *used to the number of input samples that are not needed any more. With `end`, no more
 * samples come: the last outputs are computed as if zeros followed, and nothing is left. */
size_t cn_resample(struct cn_filters *filters, const struct cn_rates *rates, const float *in,
                   size_t n, bool end, uint32_t *phase, float *out, size_t *used);

#endif
