/* frontend/server/grpc_lobby.h - connections to a gRPC port that have not begun to speak HTTP/2.
 *
 * A connection waits here until its first bytes are there: the preface of HTTP/2 and the head of
 * the client's SETTINGS frame, which every client sends at once. A connection that sends something
 * else is closed (a client of HTTP/1.1 is told the port for HTTP), and so is one that takes longer
 * than --header-timeout. When CN_GRPC_LOBBY_MAX connections wait, the one that has waited longest
 * makes room, so silent connections keep nobody out. Loop 0.
 */
#ifndef CN_FRONTEND_SERVER_GRPC_LOBBY_H
#define CN_FRONTEND_SERVER_GRPC_LOBBY_H

#include <stdint.h>

#include "core/containers/list.h"
#include "core/loop/loop.h"
#include "frontend/intake/client_addresses.h"

struct cn_client_address;

#define CN_GRPC_LOBBY_MAX 512

struct cn_grpc_lobby {
    struct cn_loop *loop;
    uint32_t limit_ms;
    enum cn_address_kind kind; /* of its port */
    struct cn_list guests;     /* in the order in which they came */
    uint32_t n_guests;
    struct cn_timer timer; /* when the first guest has waited for too long */
    /* Takes over a connection that speaks HTTP/2, and the place of its address. */
    void (*on_ready)(struct cn_grpc_lobby *lobby, int fd, struct cn_client_address *from);
    /* A connection was closed: it was silent, or spoke something else. */
    void (*on_closed)(struct cn_grpc_lobby *lobby);
};

/* The caller has set the functions. */
void cn_grpc_lobby_init(struct cn_grpc_lobby *lobby, struct cn_loop *loop, uint32_t limit_ms,
                        enum cn_address_kind kind);
/* Takes over a connection and the place of its address. */
void cn_grpc_lobby_add(struct cn_grpc_lobby *lobby, int fd, struct cn_client_address *from);
/* Closes all that wait. May be called twice. */
void cn_grpc_lobby_fini(struct cn_grpc_lobby *lobby);

#endif
