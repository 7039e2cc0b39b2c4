/* config/model/stream_input.h - models whose requests are pieces of a stream: the keys
 * `stream.input`, `stream.window` and others of a model's YAML. Any thread.
 *
 *   stream: {input: audio, encoding: pcm_s16le, rate: 16000, window: 512, hop: 512}
 *
 * The worker cuts the pieces into windows (worker/stream_input/). Here is what the server and the
 * worker must know of such a model: whether its settings fit together, and what its tensors look
 * like to a client, which sends any number of samples, and to the model, which gets windows.
 */
#ifndef CN_CONFIG_MODEL_STREAM_INPUT_H
#define CN_CONFIG_MODEL_STREAM_INPUT_H

#include <stdbool.h>

#include "config/model/model_io.h"

#define CN_STREAM_RATE_MIN 1000
#define CN_STREAM_RATE_MAX 384000

/* The numbers of the words in model_words.c. */
enum cn_stream_kind { CN_STREAM_NONE, CN_STREAM_AUDIO, CN_STREAM_SERIES };
enum cn_stream_encoding { CN_ENCODING_PCM_S16LE, CN_ENCODING_PCM_F32LE, CN_ENCODING_MULAW };
enum cn_stream_nan { CN_STREAM_NAN_REFUSE, CN_STREAM_NAN_ZERO };
enum cn_stream_answers { CN_STREAM_LIST, CN_STREAM_BYTES };

struct cn_model_config;

/* Checks that the settings of the stream fit together and fit the model's tensors. `io` has the
 * tensors as the model declares them; NULL: it is not typed. CN_E_CONFIG. Does nothing for a model
 * without stream.input, except that it refuses other keys of such a stream. */
int cn_stream_input_check(const struct cn_model_config *config, const struct cn_model_io *io,
                          struct cn_error *err);

/* Turns the declared tensors into what clients of such a model see: its first input takes samples
 * of any number, and its outputs have a dimension more, the windows, if the model has no batch
 * dimension. Call it once, after cn_stream_input_check. */
void cn_stream_input_widen(const struct cn_model_config *config, struct cn_model_io *io);

/* Can a client send the samples of a stream as a tensor of this type? INT16 and FP32 are samples,
 * UINT8 and BYTES (one element) are bytes in the stream's encoding or of a WAV file. */
bool cn_stream_takes(enum cn_datatype type);

#endif
