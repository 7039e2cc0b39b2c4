/* worker/stream_input/sound_samples.h - samples as clients write them, and as floats. Any thread,
 * no state. */
#ifndef CN_WORKER_STREAM_INPUT_SOUND_SAMPLES_H
#define CN_WORKER_STREAM_INPUT_SOUND_SAMPLES_H

#include <stdint.h>

#include "config/model/stream_input.h"
#include "core/errors/error.h"
#include "core/text/str.h"

#define CN_CHANNELS_MAX 8

/* How the samples of a request are written. */
struct cn_sound_format {
    enum cn_stream_encoding encoding;
    uint32_t rate, channels;
};

/* Returns the bytes of a sample of one channel. */
unsigned cn_sample_bytes(enum cn_stream_encoding encoding);

/* Converts `n` samples, each with all its channels, to floats from -1 to 1. Several channels become
 * one, their mean. `bytes` has exactly these samples. CN_E_BAD_REQUEST: a float is NaN or infinite,
 * which `nan` may allow. */
int cn_samples_read(struct cn_str bytes, const struct cn_sound_format *format,
                    enum cn_stream_nan nan, float *out, size_t n, struct cn_error *err);

/* Reads a JSON list of numbers, "[1, 2.5, -3e4]", into `out`, which has room for `max`. With `out`
 * NULL it only counts them. Sets *n. CN_E_BAD_REQUEST: it is not such a list; CN_E_TOO_LARGE: it
 * has more than `max` numbers. */
int cn_numbers_read(struct cn_str json, float *out, size_t max, size_t *n, struct cn_error *err);

#endif
