/* worker/stream_input/wav.h - reads the header of a WAV file. Any thread, no state. */
#ifndef CN_WORKER_STREAM_INPUT_WAV_H
#define CN_WORKER_STREAM_INPUT_WAV_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/text/str.h"
#include "worker/stream_input/sound_samples.h"

/* What a header says of the samples behind it. */
struct cn_wav {
    struct cn_sound_format format;
    size_t data_at;      /* where the samples begin in the bytes */
    uint64_t data_bytes; /* how many bytes they have; UINT64_MAX: the file does not know */
};

/* Do the bytes begin as a WAV file does? */
bool cn_wav_begins(struct cn_str bytes);

/* Reads the header of bytes for which cn_wav_begins() is true. The samples themselves need not be
 * there, or not all of them. CN_E_BAD_REQUEST: the header is cut off, or the file has an encoding
 * that is not supported; the message names it. Does not check rate and channels. */
int cn_wav_read(struct cn_str bytes, struct cn_wav *out, struct cn_error *err);

#endif
