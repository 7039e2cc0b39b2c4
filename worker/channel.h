/* worker/channel.h - the worker's end of the socket to the server: frames in, frames out.
 *
 * Bytes are read into blocks and frames stay where they were read; whoever keeps rows of a frame
 * holds a reference to its block. Owned by the worker's one thread.
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

/* Bytes that were read, and in `arena` what was decoded from them. */
struct cn_block {
    struct cn_list link; /* spare blocks */
    uint32_t refs;
    size_t cap, filled, parsed;
    struct cn_arena arena;
    char bytes[];
};
void cn_block_ref(struct cn_block *block);

struct cn_channel {
    int fd;
    bool eof;    /* the server is gone */
    bool more;   /* the last read filled its block: there may be more */
    bool waited; /* it found nothing at once */
    struct cn_block *current;
    struct cn_list spare;
    unsigned n_spare;
    struct cn_buf out; /* frames that leave with the next flush */
    struct cn_borrowed_output
        borrowed;       /* large bodies of them, which wait where their replies are */
    bool out_answers;   /* a batch's answers are among them: a kill point counts those */
    uint64_t waited_us; /* CPU time that waiting took, about */
    uint64_t wait_us;   /* that of the last wait that was measured */
    uint32_t n_waits;
    struct cn_busy_wait busy_wait; /* of a read that waits; limit 0 as at first: it sleeps */
};

/* Takes `fd`, a connected stream socket, and makes it blocking. */
void cn_channel_init(struct cn_channel *channel, int fd);
void cn_channel_fini(struct cn_channel *channel);

/* Reads once; waits up to timeout_ms for the first byte (0: not at all). Call cn_channel_next until
 * it returns 0 before reading again. Sets `eof` once the server is gone. 0, or CN_E_IO,
 * CN_E_OUT_OF_MEMORY, CN_E_PROTOCOL. */
int cn_channel_read(struct cn_channel *channel, int timeout_ms, struct cn_error *err);
/* The next complete frame: 1, with the block that holds it (borrowed: ref it to keep it over the
 * next call of read); 0 when there is none; CN_E_PROTOCOL. */
int cn_channel_next(struct cn_channel *channel, struct cn_frame *out, struct cn_block **block,
                    struct cn_error *err);
void cn_block_unref(struct cn_channel *channel, struct cn_block *block);

/* Sends all of `out` with as few writes as the socket allows. 0 also when the server is gone
 * (`eof`); CN_E_OUT_OF_MEMORY when a frame did not fit into memory. */
int cn_channel_flush(struct cn_channel *channel, struct cn_error *err);

#endif
