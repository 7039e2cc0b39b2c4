/* grpc/transport/h2_guard.c - finds the frames in a connection's bytes (RFC 9113, 4.1) and counts
 * those that cancel a call. One thread at a time. */
#include "grpc/transport/h2_guard.h"

#include <string.h>

#include "core/time/clock.h"
#include "frontend/intake/client_addresses.h"

#define PREFACE_BYTES 24
#define DATA 0
#define RST_STREAM 3
#define PADDED 8 /* a flag */

void
cn_h2_guard_init(struct cn_h2_guard *guard, const struct cn_h2_limits *limits)
{
    *guard = (struct cn_h2_guard){.skip = PREFACE_BYTES,
                                  .resets = limits->resets * CN_H2_RESETS_SAVED_S,
                                  .then_ms = cn_now_ms()};
}

/* Adds what the time since the last refill is worth. */
static void
refill(struct cn_h2_guard *guard, const struct cn_h2_limits *limits, uint64_t now_ms)
{
    const uint64_t most = (uint64_t)limits->resets * CN_H2_RESETS_SAVED_S;
    uint64_t passed_ms = now_ms > guard->then_ms ? now_ms - guard->then_ms : 0;
    uint64_t more =
        passed_ms >= 1000 * CN_H2_RESETS_SAVED_S ? most : passed_ms * limits->resets / 1000;

    if (more == 0)
        return;
    guard->then_ms = now_ms;
    guard->resets = (uint32_t)(guard->resets + more < most ? guard->resets + more : most);
}

/* A cancelled call must be paid for twice: by the connection, and by the address, which may have
 * spread its calls over many connections. */
static bool
may_cancel(struct cn_h2_guard *guard, const struct cn_h2_limits *limits,
           struct cn_client_address *from)
{
    uint64_t now_ms;

    if (limits->resets == 0)
        return true;
    now_ms = cn_now_ms();
    refill(guard, limits, now_ms);
    if (guard->resets == 0)
        return false;
    guard->resets--;
    return !from ||
           cn_client_address_spend(from, (uint64_t)limits->resets * CN_H2_ADDRESS_TIMES, now_ms);
}

bool
cn_h2_guard_provoked(struct cn_h2_guard *guard, const struct cn_h2_limits *limits,
                     struct cn_client_address *from)
{
    guard->n_resets++;
    return may_cancel(guard, limits, from);
}

/* A frame is a head of nine bytes (three for the length of its payload, one for its type, one for
 * flags, four for the stream), and the payload, which is skipped. Heads and payloads may be cut
 * anywhere between two calls. */
bool
cn_h2_guard_feed(struct cn_h2_guard *guard, const struct cn_h2_limits *limits,
                 struct cn_client_address *from, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;

    while (len > 0) {
        size_t n;

        if (guard->skip > 0) {
            n = guard->skip < len ? guard->skip : len;
            guard->skip -= (uint32_t)n;
        } else {
            n = sizeof(guard->head) - guard->n_head < len ? sizeof(guard->head) - guard->n_head
                                                          : len;
            memcpy(guard->head + guard->n_head, at, n);
            guard->n_head = (uint8_t)(guard->n_head + n);
            if (guard->n_head == sizeof(guard->head)) {
                guard->n_head = 0;
                guard->skip =
                    (uint32_t)guard->head[0] << 16 | (uint32_t)guard->head[1] << 8 | guard->head[2];
                if (guard->head[3] == RST_STREAM) {
                    guard->n_resets++;
                    if (!may_cancel(guard, limits, from))
                        return false;
                }
            }
        }
        at += n;
        len -= n;
    }
    return true;
}

uint32_t
cn_h2_guard_in_data(const struct cn_h2_guard *guard, int32_t *stream)
{
    const uint8_t *id = guard->head + 5;

    if (guard->n_head > 0 || guard->head[3] != DATA || (guard->head[4] & PADDED))
        return 0;
    *stream = (int32_t)((uint32_t)(id[0] & 0x7f) << 24 | (uint32_t)id[1] << 16 |
                        (uint32_t)id[2] << 8 | id[3]);
    return guard->skip;
}
