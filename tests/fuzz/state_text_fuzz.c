/* cn_fuzz: core proto handlers */
/* tests/fuzz/state_text_fuzz.c - any bytes as a stored state that is shown as text.
 *
 * Whatever they are, the text is one JSON value. */
#include <jansson.h>

#include "core/errors/panic.h"
#include "handlers/state_text.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const char *const runtimes[] = {"lua", "python", "c"};

    for (size_t i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]); i++) {
        struct cn_buf out;
        json_t *value;

        cn_buf_init(&out, 0);
        cn_state_text(runtimes[i], (struct cn_str){(const char *)bytes, len}, &out);
        value =
            json_loadb(out.data ? out.data : "", out.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        cn_assert(value);
        json_decref(value);
        cn_buf_fini(&out);
    }
    return 0;
}
