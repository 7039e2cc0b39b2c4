/* frontend/intake/request_bytes.c - one sum for the process. Any thread. */
#include "frontend/intake/request_bytes.h"

#include <stdatomic.h>

static _Atomic uint64_t sum, limit = UINT64_MAX;

void
cn_request_bytes_set_limit(uint64_t bytes)
{
    atomic_store(&limit, bytes);
}

bool
cn_request_bytes_fit(size_t len)
{
    const uint64_t allowed = atomic_load_explicit(&limit, memory_order_relaxed);

    return len < CN_REQUEST_BYTES_STEP ||
           len + atomic_load_explicit(&sum, memory_order_relaxed) <= allowed;
}

bool
cn_request_bytes_take(struct cn_request_bytes *bytes, size_t now)
{
    const size_t wanted = now - now % CN_REQUEST_BYTES_STEP;
    uint64_t before;

    if (wanted <= bytes->counted)
        return true;
    before = atomic_fetch_add_explicit(&sum, wanted - bytes->counted, memory_order_relaxed);
    if (before + (wanted - bytes->counted) > atomic_load_explicit(&limit, memory_order_relaxed)) {
        atomic_fetch_sub_explicit(&sum, wanted - bytes->counted, memory_order_relaxed);
        return false;
    }
    bytes->counted = wanted;
    return true;
}

void
cn_request_bytes_move(struct cn_request_bytes *to, struct cn_request_bytes *from)
{
    to->counted = from->counted;
    from->counted = 0;
}

void
cn_request_bytes_done(struct cn_request_bytes *bytes)
{
    if (bytes->counted)
        atomic_fetch_sub_explicit(&sum, bytes->counted, memory_order_relaxed);
    bytes->counted = 0;
}

int
cn_request_bytes_refuse(struct cn_error *err)
{
    return cn_fail(err, CN_E_UNAVAILABLE,
                   "the server holds requests of %llu bytes already (max-held-requests); try again",
                   (unsigned long long)atomic_load_explicit(&limit, memory_order_relaxed));
}
