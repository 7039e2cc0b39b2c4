/* management/pool/temp_watch.h - bounds the bytes in folders for temporary files.
 *
 * The kernel has no such bound for one folder without root's rights or a file system of its own.
 * So a thread adds up what is in each folder once a second. It finds out afterwards, and does not
 * see files that were deleted while they are open. */
#ifndef CN_MANAGEMENT_POOL_TEMP_WATCH_H
#define CN_MANAGEMENT_POOL_TEMP_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "core/loop/loop.h"

struct cn_temp_watch;

/* Begins to watch a folder. When it has more than `max_bytes`, on_full(ctx) is called on `loop`,
 * once until on_emptied(ctx). Any thread. NULL: no thread can be started, as the log says. */
struct cn_temp_watch *cn_temp_watch_add(const char *folder, uint64_t max_bytes,
                                        struct cn_loop *loop, void (*on_full)(void *ctx),
                                        void (*on_emptied)(void *ctx), void *ctx);
/* Those who wrote into the folder are gone: deletes what is in it, and then calls on_emptied(ctx)
 * on the watch's loop. On that loop. */
void cn_temp_watch_empty(struct cn_temp_watch *watch);
/* Ends that. A call of its functions may still be in the loop's mailbox. On the loop, or when the
 * loop has ended. NULL is allowed. */
void cn_temp_watch_remove(struct cn_temp_watch *watch);
/* Ends the thread. Main thread, when no loop runs any more. */
void cn_temp_watch_stop(void);

/* Does the folder have more than `max_bytes`? Each entry counts as 4 KiB at least, because a file
 * without bytes takes room, too. Folders that lie deeper than 64 count as too much, and so does a
 * folder that exists and cannot be read. */
bool cn_temp_watch_is_full(const char *folder, uint64_t max_bytes);

#endif
