/* grpc/transport/h2_guard.h - counts the frames of one HTTP/2 connection before nghttp2 sees them.
 *
 * A client may open a call and cancel it (RST_STREAM) as often as it likes: cancelled calls do not
 * count among the open ones, and each of them costs the server and its workers time. So a
 * connection may cancel a certain number of calls in a second, and an address four times as many
 * over all of its connections. It costs one look at the head of each frame. A client can also make
 * the server reset a call, with a frame that is wrong (CVE-2025-8671); such a call counts, too.
 */
#ifndef CN_GRPC_TRANSPORT_H2_GUARD_H
#define CN_GRPC_TRANSPORT_H2_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cn_client_address;

struct cn_h2_limits {
    uint32_t resets; /* calls that a connection may cancel in a second; 0: any number */
};

/* A connection may have saved up this many seconds' resets. */
#define CN_H2_RESETS_SAVED_S 2
/* All connections of an address together may cancel this many times as many calls as one. */
#define CN_H2_ADDRESS_TIMES 4

struct cn_h2_guard {
    uint32_t skip;     /* bytes of the preface or of the frame's payload that are still to come */
    uint32_t resets;   /* how many more calls may be cancelled */
    uint64_t n_resets; /* cancelled calls since the begin */
    uint64_t then_ms;  /* when `resets` was last refilled */
    uint8_t n_head;    /* bytes of the next frame's head that have come */
    uint8_t head[9];
};

void cn_h2_guard_init(struct cn_h2_guard *guard, const struct cn_h2_limits *limits);
/* Reads `len` further bytes of the connection. Returns false when it must end. `from` may be
 * NULL. */
bool cn_h2_guard_feed(struct cn_h2_guard *guard, const struct cn_h2_limits *limits,
                      struct cn_client_address *from, const void *bytes, size_t len);
/* How much of the payload of a DATA frame without padding is still to come; 0: the next bytes are
 * something else. Sets *stream to the frame's stream. */
uint32_t cn_h2_guard_in_data(const struct cn_h2_guard *guard, int32_t *stream);
/* The server has reset a call because of a wrong frame. Returns false when the connection must end.
 */
bool cn_h2_guard_provoked(struct cn_h2_guard *guard, const struct cn_h2_limits *limits,
                          struct cn_client_address *from);

#endif
