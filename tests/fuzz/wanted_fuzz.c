/* cn_fuzz: core management */
/* tests/fuzz/wanted_fuzz.c - any bytes as the set of models that the nodes of a shared store serve.
 *
 * Besides memory errors: what is accepted has one default version for each name and is read again
 * as it was written, and a refusal says why. */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "management/cluster/wanted.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_wanted wanted, again;
    struct cn_error err = {0};
    struct cn_buf text;

    if (cn_wanted_parse((struct cn_str){(const char *)data, size}, &wanted, &err)) {
        cn_assert(err.code == CN_E_PROTOCOL && err.message[0] && wanted.n == 0);
        return 0;
    }
    for (uint32_t i = 0; i < wanted.n; i++)
        cn_assert(cn_wanted_find(&wanted, wanted.models[i].name, NULL) &&
                  strlen(wanted.models[i].id) < CN_WANTED_ID_MAX);
    cn_buf_init(&text, 0);
    cn_wanted_print(&wanted, &text);
    cn_assert(cn_wanted_parse(cn_buf_str(&text), &again, &err) == 0 && again.n == wanted.n);
    cn_buf_fini(&text);
    cn_wanted_fini(&wanted);
    cn_wanted_fini(&again);
    return 0;
}
