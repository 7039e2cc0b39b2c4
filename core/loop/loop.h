/* core/loop/loop.h - one thread, one epoll set, its timers and its mailbox.
 *
 * A turn: source, epoll_wait -> descriptor callbacks -> timers -> mailbox -> hooks
 * (libmicrohttpd runs here) -> deferred work. Work collected in a turn is
 * done once at its end, by cn_loop_defer: that is the natural batching.
 * Only cn_loop_post and cn_loop_stop may be called from other threads.
 */
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

/* A message to a loop. Intrusive: it must stay valid until fn is called. */
struct cn_msg {
    struct cn_msg *next;
    void (*fn)(struct cn_msg *msg);
};

/* A watched descriptor. The owner keeps the memory until cn_loop_unwatch. */
struct cn_watch {
    int fd;
    void (*fn)(struct cn_watch *watch, uint32_t events); /* EPOLL... bits */
    uint32_t generation;                                 /* loop's own; 0: not watched */
};

/* Something to run once at the end of this turn (or of the next, if called from deferred work). */
struct cn_deferred {
    struct cn_list link;
    void (*fn)(struct cn_deferred *deferred);
};

/* Runs in every turn, after timers and before deferred work. `timeout_ms` says when it must run
 * next at the latest: CN_NEVER, or a number of ms from now; 0 makes the next turn not wait. */
struct cn_hook {
    struct cn_list link;
    void (*run)(struct cn_hook *hook);
    uint64_t (*timeout_ms)(struct cn_hook *hook);
};

/* Where messages come from that no descriptor tells of: it is asked in every turn, and again and
 * again while the loop looks for work before it sleeps, and posts what it finds. Loop's thread. */
struct cn_source {
    void (*ask)(struct cn_source *source);
    /* The loop goes to sleep: whoever has a message from now on must post it. */
    void (*rest)(struct cn_source *source);
};

int cn_loop_create(unsigned index, struct cn_loop **out, struct cn_error *err);
/* Not while it runs. Messages still in the mailbox are dropped. */
void cn_loop_destroy(struct cn_loop *loop);

/* Before it sleeps a busy loop looks for events for so long (core/time/busy_wait.h); 0, as at
 * first: not at all. Not while it runs. */
void cn_loop_set_busy_wait(struct cn_loop *loop, uint32_t limit_us);

/* Runs turns in the calling thread until cn_loop_stop. */
void cn_loop_run(struct cn_loop *loop);
/* One turn, waiting at most max_wait_ms; for tests and start-up. */
void cn_loop_turn(struct cn_loop *loop, int max_wait_ms);
/* Any thread. */
void cn_loop_stop(struct cn_loop *loop);

/* Any thread: `msg->fn` runs on the loop, in the order of posting as seen by each poster.
 * Wakes the loop only when its mailbox was empty. */
void cn_loop_post(struct cn_loop *loop, struct cn_msg *msg);

/* Any thread: would a message find the loop at work? Out of date as soon as it is known. */
bool cn_loop_is_awake(const struct cn_loop *loop);

unsigned cn_loop_index(const struct cn_loop *loop);
/* The loop that the calling thread runs, or NULL. */
struct cn_loop *cn_loop_current(void);
/* Does the calling thread run this loop? Also true between two cn_loop_turn of a test. */
bool cn_loop_is_here(const struct cn_loop *loop);
/* As that, and while no thread is in cn_loop_run for it: set-up before, clean-up after. */
bool cn_loop_may_touch(const struct cn_loop *loop);
#define cn_assert_on_loop(loop) cn_assert(cn_loop_may_touch(loop))

/* The time of this turn, in ms: read once a turn, so cheap. */
uint64_t cn_loop_now_ms(const struct cn_loop *loop);
/* The same in microseconds of cn_now_us(). */
uint64_t cn_loop_now_us(const struct cn_loop *loop);
struct cn_timer_wheel *cn_loop_wheel(struct cn_loop *loop);
/* Counters and gauges of this loop (busy time among them). */
struct cn_metrics *cn_loop_metrics(struct cn_loop *loop);

/* EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLET ... ; level-triggered unless EPOLLET. */
int cn_loop_watch(struct cn_loop *loop, struct cn_watch *watch, int fd, uint32_t events,
                  struct cn_error *err);
int cn_loop_rewatch(struct cn_loop *loop, struct cn_watch *watch, uint32_t events,
                    struct cn_error *err);
/* No callback comes after this, not even for events already fetched. Does not close the fd: do that
 * after. Harmless on zeroed memory and when called twice. */
void cn_loop_unwatch(struct cn_loop *loop, struct cn_watch *watch);

/* Harmless when already deferred. To take it back: cn_list_remove(&deferred->link). */
void cn_loop_defer(struct cn_loop *loop, struct cn_deferred *deferred);
void cn_loop_add_hook(struct cn_loop *loop, struct cn_hook *hook);
void cn_loop_remove_hook(struct cn_loop *loop, struct cn_hook *hook);
/* One at most; NULL: none. The owner keeps the memory. */
void cn_loop_set_source(struct cn_loop *loop, struct cn_source *source);

#endif
