/* frontend/server/grpc_seats.c - seats by descriptor, checked with fstat(2). Loop 0.
 *
 * A seat remembers the inode number of its socket. Sockets get a new inode number each, so a
 * descriptor that was closed and opened again for something else has another number than the seat.
 * `taken` may be too high, because seats of connections that have ended are cleared only when they
 * are needed, but never too low.
 */
#include "frontend/server/grpc_seats.h"

#include <string.h>
#include <sys/stat.h>

#include "core/memory/mem.h"

/* Returns the inode number of a socket; 0: the descriptor is closed or is not a socket. */
static uint64_t
file_of(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) ? (uint64_t)st.st_ino : 0;
}

/* Makes room for `n` descriptors, by doubling. */
static void
make_room(struct cn_grpc_seats *seats, size_t n)
{
    size_t more = seats->n ? seats->n : 64;
    uint64_t *files;

    while (more < n)
        more *= 2;
    if (more == seats->n)
        return;
    files = cn_alloc(more * sizeof(*files)); /* zeroed */
    if (seats->n)
        memcpy(files, seats->files, seats->n * sizeof(*files));
    cn_free(seats->files);
    seats->files = files;
    seats->n = more;
}

static void
clear_left(struct cn_grpc_seats *seats)
{
    size_t i;

    for (i = 0; i < seats->n; i++) {
        if (seats->files[i] && file_of((int)i) != seats->files[i]) {
            seats->files[i] = 0;
            seats->taken--;
        }
    }
}

bool
cn_grpc_seats_take(struct cn_grpc_seats *seats, int fd, uint32_t max, uint64_t now_ms)
{
    uint64_t *seat;

    make_room(seats, (size_t)fd + 1);
    seat = &seats->files[fd];
    seats->taken -=
        *seat != 0; /* the earlier connection has ended, since its number was given again */
    *seat = 0;
    if (seats->taken >= max && now_ms >= seats->next_look_ms) {
        clear_left(seats);
        seats->next_look_ms = now_ms + CN_GRPC_SEATS_LOOK_MS;
    }
    if (seats->taken >= max)
        return false;
    *seat = file_of(fd);
    seats->taken += *seat != 0;
    return true;
}

void
cn_grpc_seats_fini(struct cn_grpc_seats *seats)
{
    cn_free(seats->files);
    *seats = (struct cn_grpc_seats){0};
}
