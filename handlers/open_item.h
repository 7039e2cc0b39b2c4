/* handlers/open_item.h - deferred items: the handler has returned, and answers them later.
 *
 * A worker's item exists only during run(). A handler that defers its answer gets this object
 * instead, which has a reply of its own. When the handler puts something into that reply, the
 * worker is woken, runs the item again, and takes it over. Worker's thread.
 */
#ifndef CN_HANDLERS_OPEN_ITEM_H
#define CN_HANDLERS_OPEN_ITEM_H

#include "handlers/runtime.h"

struct cn_open_item {
    struct cn_item item;   /* what the handler works on */
    struct cn_runtime *rt; /* NULL: the worker must not be woken any more */
    bool over;             /* the handler has ended its answer */
};

/* Begins a deferred item, in the call in which the handler defers it. `rt` and the row must outlive
 * it. */
void cn_open_item_init(struct cn_open_item *open, struct cn_runtime *rt,
                       const struct cn_item *item);
void cn_open_item_fini(struct cn_open_item *open);

/* Call it after something was put into open->item.reply, or `over` was set: wakes the worker. */
void cn_open_item_wake(struct cn_open_item *open);
/* Call it in run(): moves what the handler has put into the open item behind the pieces of `item`,
 * which gets reply.more until the open item is over. */
void cn_open_item_take(struct cn_open_item *open, struct cn_item *item);

#endif
