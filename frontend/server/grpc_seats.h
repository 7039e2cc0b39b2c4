/* frontend/server/grpc_seats.h - counts the connections that the gRPC core holds, since the core
 * does not report when one ends.
 *
 * The numbers of descriptors show it: when a connection has ended, its number is free or belongs to
 * another file. So each connection takes the seat with its descriptor's number. When all seats seem
 * to be taken, the seats whose socket is gone are cleared. Owned by loop 0.
 */
#ifndef CN_FRONTEND_SERVER_GRPC_SEATS_H
#define CN_FRONTEND_SERVER_GRPC_SEATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cn_grpc_seats {
    uint64_t *files; /* by descriptor: inode number of its socket; 0: no known connection */
    size_t n;
    uint32_t taken; /* never fewer than there are connections */
    uint64_t next_look_ms;
};

/* Takes a seat for the connection `fd`. Returns false when `max` other connections are open. This
 * costs O(1). Only while all seats seem to be taken, a call looks at each of them, at most once in
 * CN_GRPC_SEATS_LOOK_MS; between two such looks a client may be refused although another has
 * left. */
#define CN_GRPC_SEATS_LOOK_MS 100
bool cn_grpc_seats_take(struct cn_grpc_seats *seats, int fd, uint32_t max, uint64_t now_ms);
void cn_grpc_seats_fini(struct cn_grpc_seats *seats);

#endif
