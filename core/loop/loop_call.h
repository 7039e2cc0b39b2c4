/* core/loop/loop_call.h - calls a function on another loop.
 *
 * It is meant for single steps of the management, which are few: each call costs one small
 * allocation. Calls from one thread to one loop run in the order in which they were made. */
#ifndef CN_CORE_LOOP_LOOP_CALL_H
#define CN_CORE_LOOP_LOOP_CALL_H

#include "core/loop/loop.h"

/* Calls fn(ctx) on `loop`, in a later turn if the caller is on that loop. Any thread. The caller
 * makes sure that `ctx` stays valid. */
void cn_call_on(struct cn_loop *loop, void (*fn)(void *ctx), void *ctx);

#endif
