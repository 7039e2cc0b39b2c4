/* worker/channel.h - the worker's end of the socket to the server: frames in, frames out.
 *
 * Bytes are read into blocks, and frames stay where they were read: rows point into their block,
 * and code that keeps a row holds a reference to the block. Owned by the worker's one thread.
 */
#ifndef CN_WORKER_CHANNEL_H
#define CN_WORKER_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"
#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/memory/borrowed_output.h"
#include "core/memory/buf.h"
#include "core/time/busy_wait.h"
#include "proto/frame.h"

/* Bytes that were read, and in `arena` the structs that were decoded from them. */
struct cn_block {
    struct cn_list link; /* in the channel's list of spare blocks */
    uint32_t refs;
    size_t cap, filled, parsed;
    struct cn_arena arena;
    char bytes[];
};
void cn_block_ref(struct cn_block *block);

/* How often unused pages of body memory are given back while there are some. */
#define CN_TRIM_EVERY_MS 5000

struct cn_channel {
    int fd;
    int passed_fd; /* a descriptor that came with the bytes; -1: none */
    int event_fd;  /* a wait for the first byte also ends when this is readable; 0: none */
    bool eof;      /* the server is gone */
    bool more;     /* the last read filled its block, so there may be more to read */
    bool waited;   /* the last read had to wait for its first byte */
    struct cn_block *current;
    struct cn_list spare;
    unsigned n_spare;
    struct cn_body_memory *body_memory; /* large bodies pass through it; NULL: through the socket */
    uint64_t trim_ms;  /* when unused pages of it are given back next; CN_NEVER: there are none */
    struct cn_buf out; /* frames that leave with the next flush */
    /* large bodies of these frames, which stay in their replies until then */
    struct cn_borrowed_output borrowed;
    bool out_answers;   /* `out` has answers of a batch; a kill point counts only those */
    uint64_t waited_us; /* CPU time spent waiting, an estimate */
    uint64_t wait_us;   /* CPU time of the last wait that was measured */
    uint32_t n_waits;
    struct cn_busy_wait busy_wait; /* how long a read polls before it sleeps; at first not at all */
};

/* Takes the connected stream socket `fd`, which _fini closes, and makes it blocking. */
void cn_channel_init(struct cn_channel *channel, int fd);
void cn_channel_fini(struct cn_channel *channel);

/* Reads once, and waits up to timeout_ms for the first byte (0: not at all). Before the next call,
 * call cn_channel_next until it returns 0. Sets `eof` when the server is gone. Returns 0 (also when
 * nothing came), CN_E_IO, CN_E_OUT_OF_MEMORY or CN_E_PROTOCOL. */
int cn_channel_read(struct cn_channel *channel, int timeout_ms, struct cn_error *err);
/* Returns 1 and the next complete frame with the block that holds it; 0 when there is none;
 * CN_E_PROTOCOL. The block is borrowed: take a reference to keep it beyond the next read. */
int cn_channel_next(struct cn_channel *channel, struct cn_frame *out, struct cn_block **block,
                    struct cn_error *err);
/* Gives a reference back. With the last one the block is kept for the next read or freed. */
void cn_block_unref(struct cn_channel *channel, struct cn_block *block);

/* Takes the body memory whose descriptor has come with a MEMORY frame. Returns 0, CN_E_PROTOCOL or
 * CN_E_UNAVAILABLE. */
int cn_channel_share(struct cn_channel *channel, const struct cn_memory_order *order,
                     struct cn_error *err);

/* Sends all of `out` and `borrowed` with as few writes as the socket allows. Returns 0, also when
 * the server is gone (`eof`), or CN_E_OUT_OF_MEMORY when a frame did not fit into memory. */
int cn_channel_flush(struct cn_channel *channel, struct cn_error *err);

#endif
