/* frontend/intake/unread.h - counts the answers that clients have not read yet, and drops the
 * oldest ones when all of them together have become too large.
 *
 * One answer is bounded by its model (max-response-size), but many clients that read nothing would
 * hold as many answers. The limit is for the whole process (max-unread-answers). An answer of which
 * less than CN_UNREAD_LEAST bytes wait is not counted: connections and calls are bounded, and with
 * them these answers. Each loop has a list of its own answers, in the order in which they began to
 * wait. When the limit is passed, the loop with the oldest answer of all drops it. Clients that
 * read leave the list soon, so the oldest answers are those of clients that do not.
 */
#ifndef CN_FRONTEND_INTAKE_UNREAD_H
#define CN_FRONTEND_INTAKE_UNREAD_H

#include <stddef.h>
#include <stdint.h>

#include "core/containers/list.h"

struct cn_loop;

#define CN_UNREAD_LEAST 65536

/* A part of a call or request. Zeroed: not counted. It belongs to a loop. */
struct cn_unread {
    struct cn_list link;
    size_t bytes;   /* that wait */
    uint64_t since; /* the lower, the longer it has waited; 0: too little waits to be counted */
    /* Drops the answer, at once or soon. The answer is not counted any more when this is called. */
    void (*drop)(struct cn_unread *unread);
};

/* The limit for the process, before the loops run. */
void cn_unread_set_limit(uint64_t bytes);
/* Adds `bytes` to what waits here. It may call `drop` of other answers of this loop, and of this
 * one. */
void cn_unread_add(struct cn_loop *loop, struct cn_unread *unread, size_t bytes);
/* The client has read `bytes` of what waits here. */
void cn_unread_sub(struct cn_loop *loop, struct cn_unread *unread, size_t bytes);
/* The client has read all, or the answer is dropped. */
void cn_unread_done(struct cn_loop *loop, struct cn_unread *unread);

#endif
