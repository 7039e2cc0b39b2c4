/* cn_fuzz: core config access */
/* tests/fuzz/key_file_fuzz.c - any bytes as a file of named keys. A file that was read is written
 * and read again as the same keys, and a refusal is one line. */
#include <string.h>

#include "access/key_file.h"
#include "core/errors/panic.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const struct cn_str text = {(const char *)bytes, len};
    struct cn_key_file file, again;
    struct cn_buf one, two;
    struct cn_error err = {0};

    if (cn_key_file_parse("fuzz", text, &file, &err) != 0) {
        cn_assert((err.code == CN_E_CONFIG || err.code == CN_E_OUT_OF_MEMORY) &&
                  strchr(err.message, '\n') == NULL);
        return 0;
    }
    for (uint32_t i = 0; i < file.n; i++)
        cn_assert(file.entries[i].scopes != 0 && file.entries[i].name.len > 0 &&
                  file.entries[i].name.len <= CN_KEY_NAME_MAX);
    cn_buf_init(&one, 0);
    cn_buf_init(&two, 0);
    cn_key_file_write(&file, &one);
    cn_assert(!one.failed);
    cn_assert(cn_key_file_parse("again", cn_buf_str(&one), &again, NULL) == 0);
    cn_key_file_write(&again, &two);
    cn_assert(cn_str_eq(cn_buf_str(&one), cn_buf_str(&two)));
    cn_buf_fini(&one);
    cn_buf_fini(&two);
    cn_key_file_fini(&file);
    cn_key_file_fini(&again);
    return 0;
}
