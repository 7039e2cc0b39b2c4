/* core/memory/borrowed_output.h - borrowed output: bytes that are sent from where they lie, between
 * the bytes of a buffer (scatter-gather output).
 *
 * Frames for a socket are collected in a struct cn_buf. Large parts need not be copied into it:
 * they are borrowed, and are sent behind the bytes that the buffer had at that moment. The owner
 * must not change or free them until `unsent` is down again. Example: a frame's head of 40 bytes is
 * in the buffer, 1 MB of a state is borrowed, and the next frame's head is in the buffer behind it;
 * one sendmsg() sends all three. Not thread-safe; owned together with the buffer. */
#ifndef CN_CORE_MEMORY_BORROWED_OUTPUT_H
#define CN_CORE_MEMORY_BORROWED_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/memory/buf.h"
#include "core/text/str.h"

/* From this size on borrowing costs less than a copy. */
#define CN_BORROW_MIN_BYTES 16384

struct cn_borrowed_piece {
    size_t at; /* the piece comes behind this many bytes of the buffer */
    struct cn_str bytes;
    uint32_t *unsent; /* counts the owner's pieces that are not completely sent; may be NULL */
};

struct cn_borrowed_output {
    struct cn_borrowed_piece *list;
    uint32_t n, cap;
    uint32_t done; /* of `n`, those that are completely sent */
    size_t sent;   /* bytes of the next piece that are sent */
    /* bytes borrowed since the beginning; the difference of two moments says how many came in
     * between */
    uint64_t bytes;
};

/* Is a piece of this size worth borrowing? Never with the tuning `borrowed-output` off. */
bool cn_borrow_pays(size_t bytes);

void cn_borrowed_output_init(struct cn_borrowed_output *borrowed);
/* Forgets all pieces. They are not read again, and their counts stay as they are. */
void cn_borrowed_output_fini(struct cn_borrowed_output *borrowed);

/* Borrows `bytes`, which come behind what `buf` has now; *unsent goes up by one. */
void cn_borrowed_output_add(struct cn_borrowed_output *borrowed, const struct cn_buf *buf,
                            struct cn_str bytes, uint32_t *unsent);
/* Is there a piece that is not completely sent? */
static inline bool
cn_borrowed_output_pending(const struct cn_borrowed_output *borrowed)
{
    return borrowed->done < borrowed->n;
}

/* Sends with one sendmsg() what comes next in `buf`, from *sent on, and of the borrowed pieces, at
 * most `max` bytes. Moves both forward by what was sent. Returns the bytes like send(), or -1 with
 * errno. */
ssize_t cn_borrowed_output_send(struct cn_borrowed_output *borrowed, const struct cn_buf *buf,
                                size_t *sent, size_t max, int fd, int flags);

/* Called when the buffer loses its first `bytes`, all of them sent, by cn_buf_consume() or
 * cn_buf_reset(). */
void cn_borrowed_output_consume(struct cn_borrowed_output *borrowed, size_t bytes);

#endif
