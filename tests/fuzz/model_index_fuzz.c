/* cn_fuzz: core management */
/* tests/fuzz/model_index_fuzz.c - any bytes as the index of an http(s) model store, and as a digest
 * file.
 *
 * Besides memory errors: no accepted entry leads out of the store, and a refusal says why. */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "management/repository/model_index.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct cn_str text = {(const char *)data, size};
    struct cn_model_index index;
    struct cn_error err = {0};
    char digest[65];

    if (cn_digest_parse(text, digest))
        cn_assert(strlen(digest) == 64);
    if (cn_model_index_parse(text, &index, &err))
        cn_assert(err.code == CN_E_CONFIG && err.message[0] && index.n == 0);
    for (uint32_t i = 0; i < index.n; i++)
        cn_assert(index.entries[i].file[0] != '/' && !strstr(index.entries[i].file, "://") &&
                  strncmp(index.entries[i].file, "../", 3) != 0 &&
                  !strstr(index.entries[i].file, "/../"));
    cn_model_index_fini(&index);
    return 0;
}
