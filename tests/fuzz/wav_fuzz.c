/* cn_fuzz: core proto config store handlers worker */
/* tests/fuzz/wav_fuzz.c - any bytes as a WAV file, and as a JSON list of numbers. An accepted
 * header lies within the bytes; the numbers are as many as were counted. */
#include <math.h>
#include <stdlib.h>

#include "core/errors/panic.h"
#include "tests/fuzz/fuzz.h"
#include "worker/stream_input/wav.h"

#define NUMBERS_MAX 1000

static void
read_numbers(struct cn_str bytes)
{
    float numbers[NUMBERS_MAX];
    struct cn_error err = {0};
    size_t counted, n;

    if (cn_numbers_read(bytes, NULL, NUMBERS_MAX, &counted, &err) != 0) {
        cn_assert(err.code == CN_E_BAD_REQUEST || err.code == CN_E_TOO_LARGE);
        return;
    }
    cn_assert(counted <= NUMBERS_MAX);
    cn_assert(cn_numbers_read(bytes, numbers, counted, &n, NULL) == 0 && n == counted);
    for (size_t i = 0; i < n; i++)
        cn_assert(isfinite(numbers[i]));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct cn_str bytes = {(const char *)data, size};
    struct cn_error err = {0};
    struct cn_wav wav;

    if (size == 0)
        return 0;
    read_numbers(bytes);
    if (!cn_wav_begins(bytes))
        return 0;
    if (cn_wav_read(bytes, &wav, &err) == 0)
        cn_assert(wav.data_at >= 20 && wav.data_at <= size && wav.data_bytes > 0 &&
                  wav.format.encoding <= CN_ENCODING_MULAW);
    else
        cn_assert(err.code == CN_E_BAD_REQUEST && err.message[0]);
    return 0;
}
