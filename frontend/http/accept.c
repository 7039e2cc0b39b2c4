/* frontend/http/accept.c - accept(2), and what to do when it fails. Owned by the loop thread.
 *
 * The listening socket is in one of three conditions:
 * - watched (level-triggered): clients are accepted, at most ACCEPTS_A_TURN in one turn of the
 *   loop, so that a burst of connections does not delay the requests of other clients;
 * - held (`is_held`): the owner has no room. The socket is not watched, and clients wait in the
 *   kernel's backlog until the owner calls cn_accept_go_on();
 * - paused: accept() failed because the process or the machine ran out of descriptors or memory. A
 *   level-triggered watch would then wake the loop without end, so the socket is not watched for
 *   PAUSE_MS. The log gets one line at the first failure and none until an accept() has succeeded.
 */
#include "frontend/http/accept.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log/log.h"

#define ACCEPTS_A_TURN 64 /* the rest comes in the next turn */
#define PAUSE_MS 100      /* after accept() had no descriptor or memory */

static void on_clients(struct cn_watch *watch, uint32_t events);

static void
wait_a_little(struct cn_accept *accept)
{
    cn_timer_set(cn_loop_wheel(accept->loop), &accept->pause,
                 cn_loop_now_ms(accept->loop) + PAUSE_MS);
}

/* Watches the socket again; if even that fails, tries once more after a pause. */
static void
on_pause_over(struct cn_timer *timer)
{
    struct cn_accept *accept = cn_container_of(timer, struct cn_accept, pause);

    if (cn_loop_watch(accept->loop, &accept->watch, accept->fd, EPOLLIN, NULL))
        wait_a_little(accept);
}

int
cn_accept_begin(struct cn_accept *accept, struct cn_loop *loop, int fd, struct cn_error *err)
{
    int rc;

    accept->loop = loop;
    accept->fd = fd;
    accept->watch.fn = on_clients;
    cn_timer_init(&accept->pause, on_pause_over);
    rc = cn_loop_watch(loop, &accept->watch, fd, EPOLLIN, err);
    if (rc)
        cn_accept_end(accept);
    return rc;
}

/* Accepts one client. Returns false when no further client can be accepted in this turn. A client
 * that went away while it waited (ECONNABORTED) does not end the turn. */
static bool
accept_one(struct cn_accept *accept)
{
    struct sockaddr_storage from = {0};
    socklen_t len = sizeof(from);
    int fd;

    if (!accept->is_ready(accept)) {
        accept->is_held = true;
        cn_loop_unwatch(accept->loop, &accept->watch);
        return false;
    }
    fd = accept4(accept->fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        accept->failing = false;
        accept->on_client(accept, fd, (struct sockaddr *)&from, len);
        return true;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (!accept->failing)
            cn_log(CN_LOG_WARN,
                   "event=accept_failed errno=%d note=\"accepting is tried again every %d ms\"",
                   errno, PAUSE_MS);
        accept->failing = true;
        cn_loop_unwatch(accept->loop, &accept->watch);
        wait_a_little(accept);
        return false;
    }
    return errno == ECONNABORTED || errno == EINTR;
}

static void
on_clients(struct cn_watch *watch, uint32_t events)
{
    struct cn_accept *accept = cn_container_of(watch, struct cn_accept, watch);
    int i;

    (void)events;
    for (i = 0; i < ACCEPTS_A_TURN && accept_one(accept); i++)
        continue;
}

void
cn_accept_go_on(struct cn_accept *accept)
{
    if (!accept->is_held || accept->fd < 0)
        return;
    accept->is_held = false;
    on_pause_over(&accept->pause);
}

void
cn_accept_end(struct cn_accept *accept)
{
    if (accept->fd < 0)
        return;
    cn_timer_cancel(&accept->pause);
    cn_loop_unwatch(accept->loop, &accept->watch);
    close(accept->fd);
    accept->fd = -1;
}
