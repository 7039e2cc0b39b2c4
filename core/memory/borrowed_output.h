/* core/memory/borrowed_output.h - bytes that are sent from where they lie, between those of a buffer.
 *
 * Who writes frames to a socket keeps them in a struct cn_buf. Large parts need not be copied into it: they
 * are lent, and stand behind the buffer's bytes that were there at the time. Who lends keeps them as they
 * are until `unsent` is down again. Not thread-safe; owned with the buffer.
 */
#ifndef CN_CORE_MEMORY_BORROWED_OUTPUT_H
#define CN_CORE_MEMORY_BORROWED_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/memory/buf.h"
#include "core/text/str.h"

/* From here on lending is less work than a copy. */
#define CN_LENT_MIN_BYTES 16384

struct cn_lent {
    size_t at; /* behind so many bytes of the buffer */
    struct cn_str bytes;
    uint32_t *unsent; /* counts its pieces that are not sent in full; may be NULL */
};

struct cn_lents {
    struct cn_lent *list;
    uint32_t n, cap;
    uint32_t done;  /* of n: sent in full */
    size_t sent;    /* bytes of the next one */
    uint64_t bytes; /* lent since the beginning: who wants to know how many takes a difference */
};

void cn_lents_init(struct cn_lents *lents);
/* Forgets all: what was lent is not looked at again, and its counts stay as they are. */
void cn_lents_fini(struct cn_lents *lents);

/* `bytes` stand behind what `buf` has now; *unsent goes up by one. */
void cn_lents_add(struct cn_lents *lents, const struct cn_buf *buf, struct cn_str bytes,
                  uint32_t *unsent);
/* Is there something to send yet? */
static inline bool
cn_lents_pending(const struct cn_lents *lents)
{
    return lents->done < lents->n;
}

/* One sendmsg() of what comes next of `buf`, from *sent on, and of what was lent; moves both forward by what
 * went out, at most `max` bytes. As send(): the bytes, or -1 and errno. */
ssize_t cn_lents_send(struct cn_lents *lents, const struct cn_buf *buf, size_t *sent, size_t max,
                      int fd, int flags);

/* The buffer loses its first `bytes`, all sent, by cn_buf_consume() or cn_buf_reset(). */
void cn_lents_consume(struct cn_lents *lents, size_t bytes);

#endif
