/* core/loop/loop.c - one thread's epoll set, mailbox, timers and deferred work.
 *
 * Everything belongs to the thread that runs the loop, except the mailbox and the two flags that
 * other threads set or read.
 *
 * - The mailbox is a stack: any thread pushes a message with one compare-and-swap, and the loop
 *   takes the whole stack with one exchange and reverses it. So posting never waits, and the order
 *   of each poster is kept.
 * - A loop that is awake needs no wake-up, since it looks into the mailbox in every turn. Only a
 *   message that finds the mailbox empty and the loop asleep writes to the eventfd. Before it
 *   sleeps, the loop sets `asleep` and then looks into the mailbox once more; a poster pushes first
 *   and looks at `asleep` then. One of the two sees the other.
 * - An event of epoll carries the descriptor's number and a generation. When a descriptor is closed
 *   in a callback and its number is used again in the same turn, an event that was fetched before
 *   has the old generation, and finds nobody.
 * - A callback may watch and unwatch any descriptor, set any timer and defer work, its own too.
 *   What it causes is done in the same turn where that is possible.
 *
 * docs/threading.md says which data belongs to which loop. */
#include "core/loop/loop.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/busy_wait.h"
#include "core/time/clock.h"
#include "core/tuning/tuning.h"
#include "metrics/counters/metrics.h"

#define EVENTS_MAX 256
#define TEST_CLOCK_WAIT_MS 5 /* how soon the loop notices that a test moved the clock */
#define SLOW_TURN_US 1000
#define MAILBOX_TAG UINT64_MAX /* the mailbox's eventfd has this tag in epoll */

/* The watch of a descriptor, found by the descriptor's number. An event carries number and
 * generation, so an event that was fetched before an unwatch finds nobody, even if the number is in
 * use again. */
struct place {
    struct cn_watch *watch;
    uint32_t generation;
};

struct cn_loop {
    unsigned index;
    int epoll_fd;
    int event_fd;                     /* written to when a message goes into an empty mailbox */
    _Atomic(struct cn_msg *) mailbox; /* newest first */
    atomic_bool asleep;               /* asleep or about to sleep: a poster must wake it */
    atomic_bool stopping;
    atomic_bool running; /* a thread is in cn_loop_run */

    uint64_t now_us, now_ms;
    uint64_t turn_ended_ms; /* when the last turn ended, which is when this one begins to wait */
    struct cn_timer_wheel *wheel;
    struct cn_list deferred;
    struct place *places;
    size_t n_places;
    uint32_t last_generation;
    struct cn_metrics metrics;
    uint64_t n_answered; /* steps whose final answers came in this turn */
    struct cn_busy_wait busy_wait;
    struct epoll_event events[EVENTS_MAX];
};

static _Thread_local struct cn_loop *current;

int
cn_loop_create(unsigned index, struct cn_loop **out, struct cn_error *err)
{
    /* Edge-triggered: each write wakes the loop once, and the counter need not be read. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = MAILBOX_TAG};
    struct cn_loop *loop = cn_alloc(sizeof(*loop));
    int rc;

    loop->index = index;
    loop->event_fd = -1;
    cn_list_init(&loop->deferred);
    loop->now_us = cn_now_us();
    loop->now_ms = loop->turn_ended_ms = loop->now_us / 1000;
    loop->wheel = cn_timer_wheel_create(loop->now_ms);
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd >= 0)
        loop->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->event_fd < 0 ||
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->event_fd, &event) < 0) {
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot set up event loop %u", index);
        cn_loop_destroy(loop);
        return rc;
    }
    *out = loop;
    return 0;
}

void
cn_loop_destroy(struct cn_loop *loop)
{
    if (!loop)
        return;
    cn_assert(!atomic_load(&loop->running));
    if (current == loop)
        current = NULL;
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    if (loop->event_fd >= 0)
        close(loop->event_fd);
    cn_timer_wheel_destroy(loop->wheel);
    cn_free(loop->places);
    cn_free(loop);
}

void
cn_loop_set_busy_wait(struct cn_loop *loop, uint32_t limit_us)
{
    cn_busy_wait_limit(&loop->busy_wait, limit_us);
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

bool
cn_loop_may_touch(const struct cn_loop *loop)
{
    return current == loop || !atomic_load_explicit(&loop->running, memory_order_acquire);
}

uint64_t
cn_loop_now_ms(const struct cn_loop *loop)
{
    return loop->now_ms;
}

void
cn_loop_answered(struct cn_loop *loop)
{
    loop->n_answered++;
}

uint64_t
cn_loop_now_us(const struct cn_loop *loop)
{
    return loop->now_us;
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
wake(struct cn_loop *loop)
{
    const uint64_t one = 1;

    /* It fails for good only if the counter is full, and then the loop is awake. */
    while (write(loop->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

void
cn_loop_post(struct cn_loop *loop, struct cn_msg *msg)
{
    struct cn_msg *head = atomic_load_explicit(&loop->mailbox, memory_order_relaxed);

    do {
        msg->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&loop->mailbox, &head, msg,
                                                    memory_order_seq_cst, memory_order_relaxed));
    /* The loop sets `asleep` and then looks into the mailbox once more; here it is the other way
     * round, so one of the two sees the other. */
    if (!head && current != loop && atomic_load(&loop->asleep))
        wake(loop);
}

void
cn_loop_stop(struct cn_loop *loop)
{
    atomic_store(&loop->stopping, true);
    wake(loop);
}

static uint64_t
tag_of(int fd, uint32_t generation)
{
    return (uint64_t)generation << 32 | (uint32_t)fd;
}

/* The table grows to the highest descriptor number that was ever watched; the kernel always gives
 * out the lowest free number. */
static struct place *
place_of(struct cn_loop *loop, int fd)
{
    size_t need = (size_t)fd + 1, n = loop->n_places ? loop->n_places : 64;
    struct place *places;

    if (need <= loop->n_places)
        return &loop->places[fd];
    while (n < need)
        n *= 2;
    places = cn_alloc(n * sizeof(*places));
    if (loop->n_places)
        memcpy(places, loop->places, loop->n_places * sizeof(*places));
    cn_free(loop->places);
    loop->places = places;
    loop->n_places = n;
    return &loop->places[fd];
}

int
cn_loop_watch(struct cn_loop *loop, struct cn_watch *watch, int fd, uint32_t events,
              struct cn_error *err)
{
    uint32_t generation = loop->last_generation + 1;
    struct epoll_event event = {.events = events};

    /* UINT32_MAX is the mailbox's, and 0 means not watched */
    if (generation == UINT32_MAX || generation == 0)
        generation = 1;
    event.data.u64 = tag_of(fd, generation);
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot watch descriptor %d", fd);
    loop->last_generation = generation;
    *place_of(loop, fd) = (struct place){watch, generation};
    watch->fd = fd;
    watch->generation = generation;
    return 0;
}

/* Does the loop call `watch` for its descriptor? Not after an unwatch, and not if the descriptor
 * was closed too early and another watch has its number now. */
static bool
holds_place(const struct cn_loop *loop, const struct cn_watch *watch)
{
    return watch->generation != 0 && watch->fd >= 0 && (size_t)watch->fd < loop->n_places &&
           loop->places[watch->fd].watch == watch &&
           loop->places[watch->fd].generation == watch->generation;
}

int
cn_loop_rewatch(struct cn_loop *loop, struct cn_watch *watch, uint32_t events, struct cn_error *err)
{
    struct epoll_event event = {.events = events, .data.u64 = tag_of(watch->fd, watch->generation)};

    cn_assert(holds_place(loop, watch));
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event) < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot watch descriptor %d", watch->fd);
    return 0;
}

void
cn_loop_unwatch(struct cn_loop *loop, struct cn_watch *watch)
{
    if (holds_place(loop, watch)) {
        loop->places[watch->fd] = (struct place){NULL, 0};
        /* the descriptor may be closed already */
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    }
    watch->generation = 0;
    watch->fd = -1;
}

void
cn_loop_defer(struct cn_loop *loop, struct cn_deferred *deferred)
{
    if (!deferred->link.next)
        cn_list_init(&deferred->link); /* zeroed memory counts as initialised */
    if (!cn_list_linked(&deferred->link))
        cn_list_push_back(&loop->deferred, &deferred->link);
}

/* The timeout for epoll_wait; -1 waits without a limit. */
static int
wait_ms(struct cn_loop *loop, int max_wait_ms)
{
    uint64_t now = loop->turn_ended_ms, next = cn_timer_wheel_next_ms(loop->wheel);
    uint64_t wait = max_wait_ms < 0 ? CN_NEVER : (uint64_t)max_wait_ms;

    if (!cn_list_empty(&loop->deferred) || atomic_load(&loop->stopping) ||
        atomic_load_explicit(&loop->mailbox, memory_order_relaxed))
        return 0;
    if (next != CN_NEVER) {
        next = next > now ? next - now : 0;
        wait = next < wait ? next : wait;
    }
    if (cn_clock_is_test() && wait > TEST_CLOCK_WAIT_MS)
        return TEST_CLOCK_WAIT_MS;
    if (wait == CN_NEVER)
        return -1;
    return wait > INT_MAX ? INT_MAX : (int)wait;
}

/* Calls the watches of the fetched events, unless they were unwatched meanwhile. */
static void
give_events(struct cn_loop *loop, int count)
{
    int i;

    for (i = 0; i < count; i++) {
        uint64_t tag = loop->events[i].data.u64;
        size_t fd = (uint32_t)tag;
        struct cn_watch *watch;

        if (tag == MAILBOX_TAG || fd >= loop->n_places)
            continue;
        watch = loop->places[fd].watch;
        if (watch && loop->places[fd].generation == (uint32_t)(tag >> 32))
            watch->fn(watch, loop->events[i].events);
    }
}

/* Takes what the mailbox holds now, the oldest first. What is posted from here on waits for the
 * next turn. */
static struct cn_msg *
take_mail(struct cn_loop *loop)
{
    struct cn_msg *msg, *next, *oldest = NULL;

    if (!atomic_load_explicit(&loop->mailbox, memory_order_relaxed))
        return NULL;
    msg = atomic_exchange_explicit(&loop->mailbox, NULL, memory_order_acquire);
    for (; msg; msg = next) {
        next = msg->next;
        msg->next = oldest;
        oldest = msg;
    }
    return oldest;
}

static void
read_mail(struct cn_msg *msg)
{
    struct cn_msg *next;

    for (; msg; msg = next) {
        next = msg->next; /* its function may free the message */
        msg->fn(msg);
    }
}

static void
read_clock(struct cn_loop *loop)
{
    loop->now_us = cn_now_us();
    loop->now_ms = loop->now_us / 1000;
}

/* Runs what was deferred so far. What is deferred meanwhile waits for the next turn, which then
 * does not sleep. */
static void
run_deferred(struct cn_loop *loop)
{
    struct cn_list *node, now;

    cn_list_init(&now);
    cn_list_splice_back(&now, &loop->deferred);
    while ((node = cn_list_pop_front(&now))) {
        struct cn_deferred *deferred = cn_container_of(node, struct cn_deferred, link);

        deferred->fn(deferred);
    }
}

/* Sleeps until an event, a message or the timeout. */
static int
sleep_for_events(struct cn_loop *loop, int timeout_ms)
{
    int count;

    atomic_store(&loop->asleep, true);
    if (atomic_load(&loop->mailbox))
        timeout_ms = 0;
    count = epoll_wait(loop->epoll_fd, loop->events, EVENTS_MAX, timeout_ms);
    atomic_store_explicit(&loop->asleep, false, memory_order_relaxed);
    return count;
}

/* Is there something to do? If so, events are in loop->events or messages in the mailbox. */
static bool
look(struct cn_loop *loop, int *count)
{
    *count = epoll_wait(loop->epoll_fd, loop->events, EVENTS_MAX, 0);
    return *count != 0 || atomic_load_explicit(&loop->mailbox, memory_order_relaxed);
}

/* Waits for events like epoll_wait; a message ends the wait, too. */
static int
wait_for_events(struct cn_loop *loop, int timeout_ms)
{
    bool found;
    int count;

    if (timeout_ms != 0 && !loop->busy_wait.limit_us)
        return sleep_for_events(loop, timeout_ms);
    found = look(loop, &count);
    if (timeout_ms == 0)
        return count;
    cn_busy_wait_begin(&loop->busy_wait);
    while (!found && cn_busy_wait_again(&loop->busy_wait))
        found = look(loop, &count);
    if (!found)
        count = sleep_for_events(loop, timeout_ms);
    cn_busy_wait_end(&loop->busy_wait);
    return count;
}

/* Clients that were answered in this turn often send their next steps before it is over. If the
 * turn has steps of others, too, it looks once more before any step is sent, so that all of them go
 * to the worker in one batch, which it is woken for only once. A loop that polls gives the worker
 * the first steps at once: its worker polls, too, and needs no wake-up. */
static void
look_again(struct cn_loop *loop, int count)
{
    if (loop->busy_wait.limit_us > 0 || count < 2 || loop->n_answered == 0 ||
        cn_list_empty(&loop->deferred) || !cn_tuned(CN_TUNING_LOOK_AGAIN))
        return;
    count = epoll_wait(loop->epoll_fd, loop->events, EVENTS_MAX, 0);
    if (count <= 0)
        return;
    give_events(loop, count);
    read_clock(loop);
}

void
cn_loop_turn(struct cn_loop *loop, int max_wait_ms)
{
    uint64_t begin_us, end_us, busy_us;
    struct cn_msg *mail;
    int count;

    current = loop;
    count = wait_for_events(loop, wait_ms(loop, max_wait_ms));
    cn_assert(count >= 0 || errno == EINTR);
    read_clock(loop);
    begin_us = loop->now_us;

    give_events(loop, count);
    /* The mailbox is emptied before the clock is read, so no message is newer than the turn's time;
     * a timer that it sets would otherwise run out too early. If there is neither a message nor an
     * event, the clock is not read again. The timers run before the messages, so what ran out
     * before a message came is over. */
    mail = take_mail(loop);
    if (mail || count > 0)
        read_clock(loop);
    cn_timer_wheel_advance(loop->wheel, loop->now_ms);
    read_mail(mail);
    look_again(loop, count);
    run_deferred(loop);

    end_us = cn_now_us();
    busy_us = end_us - begin_us;
    loop->turn_ended_ms = end_us / 1000;
    cn_metrics_add(&loop->metrics, CN_M_LOOP_TURNS, 1);
    cn_metrics_add(&loop->metrics, CN_M_LOOP_BUSY, busy_us);
    if (loop->n_answered > 0 && cn_tuned(CN_TUNING_STAGE_TIMES))
        cn_metrics_observe_many(&loop->metrics, CN_M_REPLY_TIME, busy_us, loop->n_answered);
    loop->n_answered = 0;
    if (busy_us > SLOW_TURN_US)
        cn_metrics_add(&loop->metrics, CN_M_LOOP_SLOW_TURNS, 1);
}

void
cn_loop_run(struct cn_loop *loop)
{
    atomic_store(&loop->running, true);
    current = loop;
    while (!atomic_load(&loop->stopping))
        cn_loop_turn(loop, -1);
    current = NULL;
    atomic_store(&loop->running, false);
}
