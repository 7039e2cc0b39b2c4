/* handlers/open_item.h - items whose handler has returned and will go on answering them later.
 *
 * Between the calls of run() the worker's item is not there. What the handler still knows is this
 * one, with a reply of its own: what is put into it is taken along when the item is run again, for
 * which the worker is woken. Worker's thread.
 */
#ifndef CN_HANDLERS_OPEN_ITEM_H
#define CN_HANDLERS_OPEN_ITEM_H

#include "handlers/runtime.h"

struct cn_open_item {
    struct cn_item item;   /* what the handler works on */
    struct cn_runtime *rt; /* NULL: nobody is to be woken any more */
    bool over;             /* the handler has ended its answer */
};

/* In the call that leaves the item open. `rt` and the row must outlive it. */
void cn_open_item_init(struct cn_open_item *open, struct cn_runtime *rt,
                       const struct cn_item *item);
void cn_open_item_fini(struct cn_open_item *open);

/* Something was put into open->item.reply, or `over` was set. */
void cn_open_item_wake(struct cn_open_item *open);
/* In run(): `item` gets what there is behind its own pieces, and is `more` until it is over. */
void cn_open_item_take(struct cn_open_item *open, struct cn_item *item);

#endif
