/* worker/stream_input/chunk.h - the piece of a stream that a request brings, and how its samples
 * are written. Any thread, no state.
 *
 * What a request says about its samples counts in this order: the header of a WAV file; the type of
 * a tensor; parameters `rate`, `encoding` and `channels` (fields of a form, parameters of a v2
 * request, inputs of TorchServe's gRPC); the content type ("audio/x-pcm; rate=8000"); what the last
 * request of the sequence said; the model's YAML.
 */
#ifndef CN_WORKER_STREAM_INPUT_CHUNK_H
#define CN_WORKER_STREAM_INPUT_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "config/model/model_config.h"
#include "proto/message.h"
#include "worker/stream_input/sound_samples.h"

/* What the model takes. */
struct cn_stream_settings {
    enum cn_stream_kind kind;
    struct cn_sound_format otherwise; /* the format of requests that say nothing */
    uint32_t window, hop;
    uint32_t chunk_max; /* samples */
    bool resample;
    enum cn_stream_nan nan;
    enum cn_stream_answers answers;
};

struct cn_chunk_source {
    const struct cn_part *part; /* the part with the samples; NULL: the request has none */
    struct cn_str bytes;        /* the samples, without a WAV header */
    bool json;                  /* the bytes are a JSON list of numbers */
    bool wav;                   /* they are the first ones of a WAV file */
    uint64_t wav_rest;          /* with wav: bytes of the file's samples that are still to come */
    struct cn_sound_format format;
    size_t n; /* number of samples, of numbers with `json` */
};

/* Finds and checks the samples of a request. `input`: the name of the tensor that has them; empty:
 * the model is not typed. `before`: the format of the sequence's last request. Returns
 * CN_E_BAD_REQUEST or CN_E_TOO_LARGE with a message that names the value and what is allowed. */
int cn_chunk_find(const struct cn_stream_settings *settings, const struct cn_row *row,
                  struct cn_str input, const struct cn_sound_format *before,
                  struct cn_chunk_source *out, struct cn_error *err);

/* Takes the model's settings out of its configuration. */
void cn_stream_settings_init(struct cn_stream_settings *settings,
                             const struct cn_model_config *config);

#endif
