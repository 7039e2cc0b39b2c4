/* core/memory/borrowed_output.h - bytes that are sent from where they lie, between those of a
 * buffer.
 *
 * Who writes frames to a socket keeps them in a struct cn_buf. Large parts need not be copied into
 * it: they are lent, and stand behind the buffer's bytes that were there at the time. Who lends
 * keeps them as they are until `unsent` is down again. Not thread-safe; owned with the buffer.
 */
#ifndef CN_CORE_MEMORY_BORROWED_OUTPUT_H
#define CN_CORE_MEMORY_BORROWED_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/memory/buf.h"
#include "core/text/str.h"

/* From here on lending is less work than a copy. */
#define CN_BORROW_MIN_BYTES 16384

struct cn_borrowed_piece {
    size_t at; /* behind so many bytes of the buffer */
    struct cn_str bytes;
    uint32_t *unsent; /* counts its pieces that are not sent in full; may be NULL */
};

struct cn_borrowed_output {
    struct cn_borrowed_piece *list;
    uint32_t n, cap;
    uint32_t done;  /* of n: sent in full */
    size_t sent;    /* bytes of the next one */
    uint64_t bytes; /* lent since the beginning: who wants to know how many takes a difference */
};

void cn_borrowed_output_init(struct cn_borrowed_output *borrowed);
/* Forgets all: what was lent is not looked at again, and its counts stay as they are. */
void cn_borrowed_output_fini(struct cn_borrowed_output *borrowed);

/* `bytes` stand behind what `buf` has now; *unsent goes up by one. */
void cn_borrowed_output_add(struct cn_borrowed_output *borrowed, const struct cn_buf *buf,
                            struct cn_str bytes, uint32_t *unsent);
/* Is there something to send yet? */
static inline bool
cn_borrowed_output_pending(const struct cn_borrowed_output *borrowed)
{
    return borrowed->done < borrowed->n;
}

/* One sendmsg() of what comes next of `buf`, from *sent on, and of what was lent; moves both
 * forward by what went out, at most `max` bytes. As send(): the bytes, or -1 and errno. */
ssize_t cn_borrowed_output_send(struct cn_borrowed_output *borrowed, const struct cn_buf *buf,
                                size_t *sent, size_t max, int fd, int flags);

/* The buffer loses its first `bytes`, all sent, by cn_buf_consume() or cn_buf_reset(). */
void cn_borrowed_output_consume(struct cn_borrowed_output *borrowed, size_t bytes);

#endif
