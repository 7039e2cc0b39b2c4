/* core/loop.c - one thread's epoll set, mailbox, timers, hooks and deferred work. */
#include "core/loop.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/metrics.h"
#include "core/panic.h"

#define EVENTS_MAX 256
#define TEST_CLOCK_WAIT_MS 5 /* how soon a moved test clock is seen */
#define SLOW_TURN_US 1000

struct cn_loop {
    int epoll_fd;
    int event_fd; /* written when the mailbox was empty */
    unsigned index;
    _Atomic(struct cn_msg *) mailbox; /* newest first */
    atomic_bool stopping;
    uint64_t now_ms;
    struct cn_timer_wheel *wheel;
    struct cn_list deferred;
    struct cn_list hooks;
    int n_events; /* events of this turn not yet given out, for unwatch */
    int at_event;
    struct epoll_event events[EVENTS_MAX];
    struct cn_metrics metrics;
};

static _Thread_local struct cn_loop *current;

int
cn_loop_create(unsigned index, struct cn_loop **out, struct cn_error *err)
{
    struct cn_loop *loop = cn_alloc(sizeof *loop);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}; /* NULL: the mailbox */
    int rc;

    loop->index = index;
    loop->event_fd = -1;
    cn_list_init(&loop->deferred);
    cn_list_init(&loop->hooks);
    loop->now_ms = cn_now_ms();
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd >= 0)
        loop->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->event_fd < 0 ||
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->event_fd, &event) < 0) {
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot set up event loop %u", index);
        cn_loop_destroy(loop);
        return rc;
    }
    loop->wheel = cn_timer_wheel_create(loop->now_ms);
    *out = loop;
    return 0;
}

void
cn_loop_destroy(struct cn_loop *loop)
{
    if (!loop)
        return;
    if (current == loop)
        current = NULL;
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    if (loop->event_fd >= 0)
        close(loop->event_fd);
    cn_timer_wheel_destroy(loop->wheel);
    cn_free(loop);
}

unsigned
cn_loop_index(const struct cn_loop *loop)
{
    return loop->index;
}

struct cn_loop *
cn_loop_current(void)
{
    return current;
}

bool
cn_loop_is_here(const struct cn_loop *loop)
{
    return current == loop;
}

uint64_t
cn_loop_now_ms(const struct cn_loop *loop)
{
    return loop->now_ms;
}

struct cn_timer_wheel *
cn_loop_wheel(struct cn_loop *loop)
{
    return loop->wheel;
}

struct cn_metrics *
cn_loop_metrics(struct cn_loop *loop)
{
    return &loop->metrics;
}

static void
loop_wake(struct cn_loop *loop)
{
    const uint64_t one = 1;

    /* EAGAIN means that the counter is full: the loop is awake anyway. */
    while (write(loop->event_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

void
cn_loop_post(struct cn_loop *loop, struct cn_msg *msg)
{
    struct cn_msg *head = atomic_load_explicit(&loop->mailbox, memory_order_relaxed);

    do {
        msg->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&loop->mailbox, &head, msg,
                                                    memory_order_release, memory_order_relaxed));
    if (!head)
        loop_wake(loop);
}

void
cn_loop_stop(struct cn_loop *loop)
{
    atomic_store(&loop->stopping, true);
    loop_wake(loop);
}

int
cn_loop_watch(struct cn_loop *loop, struct cn_watch *watch, int fd, uint32_t events,
              struct cn_error *err)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};

    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot watch descriptor %d", fd);
    watch->fd = fd;
    return 0;
}

int
cn_loop_rewatch(struct cn_loop *loop, struct cn_watch *watch, uint32_t events,
                struct cn_error *err)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};

    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event) < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot watch descriptor %d", watch->fd);
    return 0;
}

void
cn_loop_unwatch(struct cn_loop *loop, struct cn_watch *watch)
{
    int i;

    if (watch->fd < 0)
        return;
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    watch->fd = -1;
    /* Events already fetched for it must not reach memory that may be freed now. */
    for (i = loop->at_event + 1; i < loop->n_events; i++) {
        if (loop->events[i].data.ptr == watch)
            loop->events[i].events = 0;
    }
}

void
cn_loop_defer(struct cn_loop *loop, struct cn_deferred *deferred)
{
    if (!deferred->link.next)
        cn_list_init(&deferred->link); /* zeroed memory is as good as initialized */
    if (!cn_list_linked(&deferred->link))
        cn_list_push_back(&loop->deferred, &deferred->link);
}

void
cn_loop_add_hook(struct cn_loop *loop, struct cn_hook *hook)
{
    cn_list_push_back(&loop->hooks, &hook->link);
}

void
cn_loop_remove_hook(struct cn_loop *loop, struct cn_hook *hook)
{
    (void)loop;
    cn_list_remove(&hook->link);
}

static int
loop_wait_ms(struct cn_loop *loop, int max_wait_ms)
{
    uint64_t next_ms = cn_timer_wheel_next_ms(loop->wheel);
    uint64_t wait_ms = max_wait_ms < 0 ? CN_NEVER : (uint64_t)max_wait_ms;
    struct cn_list *node;
    struct cn_hook *hook;
    uint64_t hook_ms;

    if (!cn_list_empty(&loop->deferred))
        return 0;
    if (next_ms != CN_NEVER) {
        next_ms = next_ms > loop->now_ms ? next_ms - loop->now_ms : 0;
        wait_ms = next_ms < wait_ms ? next_ms : wait_ms;
    }
    cn_list_for_each(node, &loop->hooks) {
        hook = cn_container_of(node, struct cn_hook, link);
        hook_ms = hook->timeout_ms ? hook->timeout_ms(hook) : CN_NEVER;
        wait_ms = hook_ms < wait_ms ? hook_ms : wait_ms;
    }
    if (cn_clock_is_test() && wait_ms > TEST_CLOCK_WAIT_MS)
        return TEST_CLOCK_WAIT_MS;
    if (wait_ms == CN_NEVER)
        return -1;
    return wait_ms > 60000 ? 60000 : (int)wait_ms;
}

static void
loop_read_mailbox(struct cn_loop *loop)
{
    struct cn_msg *msg, *next, *fifo = NULL;
    uint64_t count;

    while (read(loop->event_fd, &count, sizeof count) < 0 && errno == EINTR)
        continue;
    msg = atomic_exchange_explicit(&loop->mailbox, NULL, memory_order_acquire);
    for (; msg; msg = next) {
        next = msg->next;
        msg->next = fifo;
        fifo = msg;
    }
    for (; fifo; fifo = next) {
        next = fifo->next;
        fifo->fn(fifo);
    }
}

static void
loop_give_events(struct cn_loop *loop)
{
    struct cn_watch *watch;
    uint32_t events;
    bool mail = false;

    for (loop->at_event = 0; loop->at_event < loop->n_events; loop->at_event++) {
        events = loop->events[loop->at_event].events;
        watch = loop->events[loop->at_event].data.ptr;
        if (!watch)
            mail = true;
        else if (events)
            watch->fn(watch, events);
    }
    loop->n_events = 0;
    if (mail)
        loop_read_mailbox(loop);
}

static void
loop_run_deferred(struct cn_loop *loop)
{
    struct cn_list now, *node;
    struct cn_deferred *deferred;

    cn_list_init(&now);
    cn_list_splice_back(&now, &loop->deferred);
    while ((node = cn_list_pop_front(&now))) {
        deferred = cn_container_of(node, struct cn_deferred, link);
        deferred->fn(deferred);
    }
}

void
cn_loop_turn(struct cn_loop *loop, int max_wait_ms)
{
    struct cn_list *node, *tmp;
    struct cn_hook *hook;
    uint64_t begin_us, busy_us;

    current = loop;
    loop->now_ms = cn_now_ms();
    loop->n_events = epoll_wait(loop->epoll_fd, loop->events, EVENTS_MAX,
                                loop_wait_ms(loop, max_wait_ms));
    if (loop->n_events < 0) {
        cn_assert(errno == EINTR);
        loop->n_events = 0;
    }
    begin_us = cn_now_us();
    loop->now_ms = begin_us / 1000u;
    loop_give_events(loop);
    cn_timer_wheel_advance(loop->wheel, loop->now_ms);
    cn_list_for_each_safe(node, tmp, &loop->hooks) {
        hook = cn_container_of(node, struct cn_hook, link);
        hook->run(hook);
    }
    loop_run_deferred(loop);
    busy_us = cn_now_us() - begin_us;
    cn_metrics_add(&loop->metrics, CN_M_LOOP_TURNS, 1);
    cn_metrics_add(&loop->metrics, CN_M_LOOP_BUSY_US, busy_us);
    if (busy_us > SLOW_TURN_US)
        cn_metrics_add(&loop->metrics, CN_M_LOOP_SLOW_TURNS, 1);
}

void
cn_loop_run(struct cn_loop *loop)
{
    while (!atomic_load(&loop->stopping))
        cn_loop_turn(loop, -1);
    current = NULL;
}
