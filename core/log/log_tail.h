/* core/log/log_tail.h - the newest lines of the log, kept in memory for the page.
 *
 * Nothing is kept before cn_log_tail_begin(). Any thread; a short lock, which costs less than the
 * write(2) that each line costs anyway. */
#ifndef CN_CORE_LOG_LOG_TAIL_H
#define CN_CORE_LOG_LOG_TAIL_H

#include <stdint.h>

#include "core/log/log.h"

#define CN_LOG_TAIL_LINES 256
#define CN_LOG_TAIL_ERRORS 64
#define CN_LOG_TAIL_BYTES 600 /* of a line; longer ones are cut */

/* Errors and warnings are also kept apart, so that a flood of other lines does not push them out.
 */
enum cn_log_tail_kind { CN_LOG_TAIL_ALL, CN_LOG_TAIL_TROUBLE };

/* Begins to keep lines; a second call changes nothing. */
void cn_log_tail_begin(void);
/* Keeps a line, which may end with a line end. */
void cn_log_tail_put(enum cn_log_level level, const char *line, unsigned long len);

/* Calls `take` for each kept line whose number is above `after`, the oldest first, and for at most
 * the newest `most` of them. Returns the number of the newest line; lines are numbered from 1 for
 * each kind. `take` must not log. */
uint64_t cn_log_tail_read(enum cn_log_tail_kind kind, uint64_t after, unsigned most,
                          void (*take)(void *ctx, uint64_t number, enum cn_log_level level,
                                       const char *text),
                          void *ctx);

#endif
