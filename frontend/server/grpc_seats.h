/* frontend/server/grpc_seats.h - how many connections the gRPC core holds, which doesn't tell when
 * one ends.
 *
 * A descriptor's number does: it is given again, or it is another file's by then. So each
 * connection takes the seat of its number, and when all seem to be taken, those whose file is gone
 * are cleared. Owned by loop 0.
 */
#ifndef CN_FRONTEND_SERVER_GRPC_SEATS_H
#define CN_FRONTEND_SERVER_GRPC_SEATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cn_grpc_seats {
    uint64_t *files; /* by descriptor: number of the socket's inode; 0: no connection known */
    size_t n;
    uint32_t taken; /* at least as many as there are connections */
    uint64_t next_look_ms;
};

/* False: `max` connections are open besides this one. O(1), but for one look at all of them each
 * CN_GRPC_SEATS_LOOK_MS at most while they seem to be so many; a second client may be refused in
 * between though somebody has left. */
#define CN_GRPC_SEATS_LOOK_MS 100
bool cn_grpc_seats_take(struct cn_grpc_seats *seats, int fd, uint32_t max, uint64_t now_ms);
void cn_grpc_seats_fini(struct cn_grpc_seats *seats);

#endif
