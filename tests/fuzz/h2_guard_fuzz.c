/* cn_fuzz: core grpc */
/* tests/fuzz/h2_guard_fuzz.c - any bytes as what a gRPC client sends. The guard must say the same
 * however the bytes are cut into pieces, and must allow as many cancelled calls as its limit says.
 */
#include <stdint.h>

#include "core/errors/panic.h"
#include "core/time/clock.h"
#include "grpc/transport/h2_guard.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct cn_h2_limits limits = {.resets = 3};
    struct cn_h2_guard whole, pieces;
    bool is_good, is_alike = true;
    size_t i;

    cn_clock_freeze();
    cn_h2_guard_init(&whole, &limits);
    cn_h2_guard_init(&pieces, &limits);
    is_good = cn_h2_guard_feed(&whole, &limits, NULL, data, size);
    for (i = 0; i < size && is_alike; i++)
        is_alike = cn_h2_guard_feed(&pieces, &limits, NULL, data + i, 1);
    cn_assert(is_alike == is_good);
    cn_assert(!is_good || (whole.skip == pieces.skip && whole.n_head == pieces.n_head));
    return 0;
}
