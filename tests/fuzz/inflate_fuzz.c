/* cn_fuzz: core frontend */
/* tests/fuzz/inflate_fuzz.c - request bodies that claim to be gzip or deflate.
 *
 * Input: the body. The uncompressed bytes must stay within their limit.
 */
#include <stdint.h>

#include "core/errors/panic.h"
#include "frontend/intake/compress.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_error err;
    struct cn_buf out;

    cn_buf_init(&out, 0);
    if (cn_inflate((struct cn_str){(const char *)data, size}, 100000, &out, &err) == 0)
        cn_assert(out.len <= 100000);
    cn_buf_fini(&out);
    return 0;
}
