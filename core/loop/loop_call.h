/* core/loop/loop_call.h - run a function on another loop.
 *
 * For management's own steps, which are few: one small allocation each. Calls
 * from one thread to one loop run in the order in which they were made.
 */
#ifndef CN_CORE_LOOP_LOOP_CALL_H
#define CN_CORE_LOOP_LOOP_CALL_H

#include "core/loop/loop.h"

/* Any thread: `fn(ctx)` runs on `loop`, in a later turn when the caller is on it. */
void cn_call_on(struct cn_loop *loop, void (*fn)(void *ctx), void *ctx);

#endif
