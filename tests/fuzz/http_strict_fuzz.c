/* cn_fuzz: core frontend */
/* tests/fuzz/http_strict_fuzz.c - any bytes as what an HTTP client sends.
 *
 * Besides memory errors it checks that the reader says the same however the bytes are cut into
 * pieces. The first byte says where they are cut.
 */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "frontend/guard/http_strict.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_http_strict whole = {0}, pieces = {0};
    const char *bytes = (const char *)data + 1;
    size_t step, good, at = 0;

    if (size < 2)
        return 0;
    size--;
    step = data[0] % 17 + 1;
    good = cn_http_strict_feed(&whole, bytes, size);
    cn_assert(good <= size && (good == size) == !whole.why);
    while (at < size) {
        size_t n = size - at < step ? size - at : step, taken;

        taken = cn_http_strict_feed(&pieces, bytes + at, n);
        at += taken;
        if (taken < n)
            break;
    }
    cn_assert(at == good && pieces.why == whole.why);
    cn_assert(pieces.state == whole.state && pieces.left == whole.left);
    return 0;
}
