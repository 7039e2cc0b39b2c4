/* cn_fuzz: core proto handlers/python/format */
/* tests/fuzz/python_state_fuzz.c - any bytes as the stored state of a Python handler.
 *
 * Bytes that the check accepts are exactly one state: each shorter part of them, and anything
 * longer, is refused. python/tests/state_test.py gives changed bytes to the reader behind the
 * check.
 */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "handlers/python/format/py_state_format.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_str bytes = {(const char *)data, size};
    struct cn_error err = {0};
    char *longer;

    if (cn_py_state_check(bytes, &err) != 0) {
        cn_assert(err.code == CN_E_STATE_STORE && err.message[0]);
        return 0;
    }
    if (size > 4096)
        return 0;
    longer = cn_strndup((const char *)data, size); /* one byte longer, with a NUL at the end */
    cn_assert(cn_py_state_check((struct cn_str){longer, size + 1}, NULL) != 0);
    for (size_t len = 0; len < size; len++)
        cn_assert(cn_py_state_check((struct cn_str){longer, len}, NULL) != 0);
    cn_free(longer);
    return 0;
}
