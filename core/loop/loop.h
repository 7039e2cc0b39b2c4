/* core/loop/loop.h - an event loop: one thread, one epoll set, its timers and its mailbox.
 *
 * A turn does this, in this order:
 * - wait for events (epoll_wait)
 * - the callbacks of descriptors
 * - the timers
 * - the messages of the mailbox
 * - the deferred work
 *
 * Work that is caused in a turn can be collected and done once at its end (cn_loop_defer), which
 * batches it without waiting. Other threads may call only the functions that say "any thread". */
#ifndef CN_CORE_LOOP_LOOP_H
#define CN_CORE_LOOP_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"
#include "core/errors/error.h"
#include "core/errors/panic.h"
#include "core/time/timer_wheel.h"

struct cn_loop;
struct cn_metrics;

/* A message to a loop, as a member of the sender's object. It must stay valid until `fn` is called.
 */
struct cn_msg {
    struct cn_msg *next;
    void (*fn)(struct cn_msg *msg);
};

/* A watched descriptor. The owner keeps the memory valid until cn_loop_unwatch. */
struct cn_watch {
    int fd;
    void (*fn)(struct cn_watch *watch, uint32_t events); /* EPOLL... bits */
    uint32_t generation;                                 /* the loop's; 0: not watched */
};

/* Work that runs once at the end of this turn, or of the next one if it is deferred by deferred
 * work. */
struct cn_deferred {
    struct cn_list link;
    void (*fn)(struct cn_deferred *deferred);
};

/* Makes a loop, which cn_loop_destroy frees. `index` is its number in names and metrics. CN_E_IO:
 * no descriptors are left. */
int cn_loop_create(unsigned index, struct cn_loop **out, struct cn_error *err);
/* Frees a loop that does not run. Messages that are still in the mailbox are dropped. */
void cn_loop_destroy(struct cn_loop *loop);

/* Sets for how long the loop waits busily before it sleeps (core/time/busy_wait.h); 0, the default,
 * is never. Not while it runs. */
void cn_loop_set_busy_wait(struct cn_loop *loop, uint32_t limit_us);

/* Runs turns in the calling thread until cn_loop_stop. */
void cn_loop_run(struct cn_loop *loop);
/* Runs one turn, which waits at most max_wait_ms; for tests and start-up. */
void cn_loop_turn(struct cn_loop *loop, int max_wait_ms);
/* Makes cn_loop_run return. Any thread. */
void cn_loop_stop(struct cn_loop *loop);

/* Posts a message: `msg->fn` runs on the loop. Messages of one thread arrive in the order in which
 * it posted them. Wakes the loop only if it sleeps and its mailbox was empty. Any thread. */
void cn_loop_post(struct cn_loop *loop, struct cn_msg *msg);

unsigned cn_loop_index(const struct cn_loop *loop);
/* The loop that the calling thread runs, or NULL. */
struct cn_loop *cn_loop_current(void);
/* Does the calling thread run this loop? Also true between two calls of cn_loop_turn in a test. */
bool cn_loop_is_here(const struct cn_loop *loop);
/* True on the loop's thread, and while no thread is in cn_loop_run for it: during set-up and
 * clean-up. */
bool cn_loop_may_touch(const struct cn_loop *loop);
#define cn_assert_on_loop(loop) cn_assert(cn_loop_may_touch(loop))

/* The time of this turn in ms. It is read once a turn, so asking is cheap. */
uint64_t cn_loop_now_ms(const struct cn_loop *loop);
/* The time of this turn in microseconds of cn_now_us(). */
uint64_t cn_loop_now_us(const struct cn_loop *loop);
struct cn_timer_wheel *cn_loop_wheel(struct cn_loop *loop);
/* The counters and gauges of this loop, its busy time among them. */
struct cn_metrics *cn_loop_metrics(struct cn_loop *loop);

/* A step got its final answer in this turn. At the turn's end it is counted in
 * continuo_reply_duration_seconds, with the tuning `stage-times`. */
void cn_loop_answered(struct cn_loop *loop);

/* Watches a descriptor for `events`: EPOLLIN, EPOLLOUT, EPOLLRDHUP, ...; level-triggered unless
 * EPOLLET is among them. rewatch changes the events. CN_E_IO: the kernel refuses the descriptor. */
int cn_loop_watch(struct cn_loop *loop, struct cn_watch *watch, int fd, uint32_t events,
                  struct cn_error *err);
int cn_loop_rewatch(struct cn_loop *loop, struct cn_watch *watch, uint32_t events,
                    struct cn_error *err);
/* Ends the watch: no callback comes after this call, not even for events that were already fetched.
 * Does not close the descriptor, which must be closed after this. Does nothing on zeroed memory or
 * when called twice. */
void cn_loop_unwatch(struct cn_loop *loop, struct cn_watch *watch);

/* Defers work to the end of the turn. Does nothing if it is deferred already.
 * cn_list_remove(&deferred->link) takes it back. */
void cn_loop_defer(struct cn_loop *loop, struct cn_deferred *deferred);

#endif
