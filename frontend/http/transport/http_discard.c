/* frontend/http/transport/http_discard.c - reads and drops what refused clients still
 * send. Owned by the loop thread.
 *
 * A refused client gets this as a courtesy, so it is bounded: in time (cn_http_refused_until), by
 * DISCARD_MAX_BYTES in bytes, and by DISCARDS_MAX connections of a listener at once.
 */
#include "frontend/http/transport/http_discard.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "frontend/http/http_listener.h"

#define DISCARD_MAX_BYTES (64u << 20)
#define DISCARDS_MAX 64
#define READ_BYTES 16384
#define READS_A_TURN 16

struct discard {
    struct cn_http_listener *listener;
    struct cn_list link;
    struct cn_watch watch;
    struct cn_timer timer;
    uint64_t bytes;
    uint64_t begun_ms, heard_ms; /* loop time of the refusal, and of the last bytes */
    int fd;
};

static void
end(struct discard *discard)
{
    cn_loop_unwatch(discard->listener->loop, &discard->watch);
    cn_timer_cancel(&discard->timer);
    cn_list_remove(&discard->link);
    discard->listener->n_discards--;
    close(discard->fd);
    cn_free(discard);
}

/* When the discard ends if no further byte comes. */
static uint64_t
until_ms(const struct discard *discard)
{
    return cn_http_refused_until(discard->begun_ms, discard->heard_ms);
}

static void
on_time(struct cn_timer *timer)
{
    struct discard *discard = cn_container_of(timer, struct discard, timer);
    struct cn_loop *loop = discard->listener->loop;

    if (cn_loop_now_ms(loop) >= until_ms(discard))
        end(discard);
    else
        cn_timer_set(cn_loop_wheel(loop), timer, until_ms(discard));
}

/* Drops what has come, at most READS_A_TURN blocks in one turn. The discard ends when the client
 * has closed, fails, or has sent too much. */
static void
on_bytes(struct cn_watch *watch, uint32_t events)
{
    struct discard *discard = cn_container_of(watch, struct discard, watch);
    char dropped[READ_BYTES];
    unsigned i;

    (void)events;
    for (i = 0; i < READS_A_TURN; i++) {
        ssize_t n = recv(discard->fd, dropped, sizeof(dropped), MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0 || (discard->bytes += (uint64_t)n) > DISCARD_MAX_BYTES) {
            end(discard);
            return;
        }
        discard->heard_ms = cn_loop_now_ms(discard->listener->loop);
    }
}

void
cn_http_discard_begin(struct cn_http_listener *listener, int fd)
{
    struct discard *discard;

    if (listener->n_discards >= DISCARDS_MAX) {
        close(fd);
        return;
    }
    discard = cn_alloc(sizeof(*discard));
    discard->listener = listener;
    discard->fd = fd;
    discard->watch.fn = on_bytes;
    if (cn_loop_watch(listener->loop, &discard->watch, fd, EPOLLIN, NULL)) {
        close(fd);
        cn_free(discard);
        return;
    }
    cn_list_push_back(&listener->discards, &discard->link);
    listener->n_discards++;
    discard->begun_ms = discard->heard_ms = cn_loop_now_ms(listener->loop);
    cn_timer_init(&discard->timer, on_time);
    cn_timer_set(cn_loop_wheel(listener->loop), &discard->timer, until_ms(discard));
}

void
cn_http_discard_end_all(struct cn_http_listener *listener)
{
    while (!cn_list_empty(&listener->discards))
        end(cn_container_of(listener->discards.next, struct discard, link));
}
