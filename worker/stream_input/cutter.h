/* worker/stream_input/cutter.h - cuts the pieces of a stream into windows, and keeps what is left
 * for the next piece. Worker's thread.
 *
 * The rest of a sequence is what its next request needs: samples that are in no window yet, or that
 * the next window repeats, and the last input samples of the resampler. It is stored in front of
 * the handler's state, as one value in the sequence's record. So it goes wherever the state goes:
 * to a worker that takes over, to another node or version, into a fork or an export.
 */
#ifndef CN_WORKER_STREAM_INPUT_CUTTER_H
#define CN_WORKER_STREAM_INPUT_CUTTER_H

#include "core/memory/buf.h"
#include "worker/stream_input/chunk.h"
#include "worker/stream_input/resampler.h"

/* What a sequence keeps between two requests. */
struct cn_stream_rest {
    struct cn_sound_format format; /* what the last request said; rate 0: there was none */
    uint64_t wav_rest;             /* bytes of a WAV file that are still to come */
    uint64_t windows;              /* how many windows were cut */
    uint32_t from_rate, phase;     /* of the resampler; from_rate 0: it has not begun */
    struct cn_buf history;         /* its last input samples: floats */
    struct cn_buf samples;         /* samples of the next windows: floats */
};

void cn_stream_rest_init(struct cn_stream_rest *rest);
void cn_stream_rest_fini(struct cn_stream_rest *rest);

/* Appends the rest to a state that is being encoded. `to_rate`: the model's rate. `has_state`: the
 * handler's state follows. */
void cn_stream_rest_put(const struct cn_stream_rest *rest, uint32_t to_rate, bool has_state,
                        struct cn_buf *out);
/* Takes the rest off the beginning of an encoded state; `state` becomes what follows. If the state
 * was made by a version without stream.input, it has no rest and stays as it is. If that version
 * had another rate, its samples are dropped. CN_E_STATE_DAMAGED. */
int cn_stream_rest_get(struct cn_stream_rest *rest, uint32_t to_rate, struct cn_str *state,
                       bool *has_state, struct cn_error *err);
/* For a model without stream.input: removes the rest that another version has left. Returns false
 * when no state of the handler follows. */
bool cn_stream_rest_skip(struct cn_str *state);

/* Reads the samples of a request into `rest`, resampled. With `end` the stream ends: zeros fill the
 * last window, and *padding becomes their number. Errors are those of cn_samples_read, or
 * CN_E_OUT_OF_MEMORY; `rest` must not be used any more then. */
int cn_cutter_feed(const struct cn_stream_settings *settings, struct cn_filters *filters,
                   struct cn_stream_rest *rest, const struct cn_chunk_source *chunk, bool end,
                   uint32_t *padding, struct cn_error *err);
/* Returns how many whole windows `rest` has; window i begins at sample i * hop. */
uint32_t cn_cutter_windows(const struct cn_stream_settings *settings,
                           const struct cn_stream_rest *rest);
/* Drops what the first `n` windows have used up. */
void cn_cutter_drop(const struct cn_stream_settings *settings, struct cn_stream_rest *rest,
                    uint32_t n);

#endif
