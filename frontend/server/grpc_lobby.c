/* frontend/server/grpc_lobby.c - waits for the first bytes of gRPC clients. It looks at the bytes
 * without taking them (MSG_PEEK), because the connection will read them itself. */
#include "frontend/server/grpc_lobby.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "frontend/intake/client_addresses.h"

#define FRAME_HEAD_BYTES 9
#define SETTINGS 4

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
#define PREFACE_BYTES (sizeof(preface) - 1)

struct guest {
    struct cn_grpc_lobby *lobby;
    struct cn_list link;
    struct cn_watch watch;
    struct cn_client_address *from;
    uint64_t until_ms;
    int fd;
};

enum begin { INCOMPLETE, GOOD, BAD };

static const char to_http[] =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    "Content-Length: 93\r\n\r\n"
    "This port speaks gRPC. HTTP requests go to port 8080, or to the port of "
    "--inference-address.\n";

/* Tells a client that speaks HTTP/1.1 where to go. It gets the answer if its request is no longer
 * than the buffer, since bytes that were not read reset the connection. */
static void
answer_http(int fd)
{
    char bytes[4096];
    ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (n > 0 && memmem(bytes, (size_t)n, " HTTP/1.", 8))
        (void)!send(fd, to_http, sizeof(to_http) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* What has the client sent so far? */
static enum begin
look(int fd)
{
    char bytes[PREFACE_BYTES + FRAME_HEAD_BYTES];
    ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
    size_t len = n > 0 ? (size_t)n : 0;

    if (n == 0)
        return BAD;
    if (memcmp(bytes, preface, len < PREFACE_BYTES ? len : PREFACE_BYTES) != 0 ||
        (len > PREFACE_BYTES + 3 && bytes[PREFACE_BYTES + 3] != SETTINGS))
        return BAD;
    return len == sizeof(bytes) ? GOOD : INCOMPLETE;
}

/* Forgets a guest, whose descriptor and address the caller takes. */
static void
forget(struct guest *guest)
{
    cn_loop_unwatch(guest->lobby->loop, &guest->watch);
    cn_list_remove(&guest->link);
    guest->lobby->n_guests--;
    cn_free(guest);
}

static void
show_out(struct guest *guest)
{
    struct cn_grpc_lobby *lobby = guest->lobby;
    struct cn_client_address *from = guest->from;
    int fd = guest->fd;

    forget(guest);
    answer_http(fd);
    cn_client_address_release(from, lobby->kind);
    close(fd);
    lobby->on_closed(lobby);
}

static void
on_bytes(struct cn_watch *watch, uint32_t events)
{
    struct guest *guest = cn_container_of(watch, struct guest, watch);
    struct cn_grpc_lobby *lobby = guest->lobby;
    struct cn_client_address *from = guest->from;
    int fd = guest->fd;
    enum begin begin = events & (EPOLLERR | EPOLLHUP) ? BAD : look(fd);

    if (begin == BAD || (begin == INCOMPLETE && (events & EPOLLRDHUP))) {
        show_out(guest);
    } else if (begin == GOOD) {
        forget(guest);
        lobby->on_ready(lobby, fd, from);
    }
}

static struct guest *
oldest(const struct cn_grpc_lobby *lobby)
{
    return cn_container_of(lobby->guests.next, struct guest, link);
}

static void
on_time(struct cn_timer *timer)
{
    struct cn_grpc_lobby *lobby = cn_container_of(timer, struct cn_grpc_lobby, timer);
    uint64_t now_ms = cn_loop_now_ms(lobby->loop);

    while (!cn_list_empty(&lobby->guests) && oldest(lobby)->until_ms <= now_ms)
        show_out(oldest(lobby));
    if (!cn_list_empty(&lobby->guests))
        cn_timer_set(cn_loop_wheel(lobby->loop), timer, oldest(lobby)->until_ms);
}

void
cn_grpc_lobby_init(struct cn_grpc_lobby *lobby, struct cn_loop *loop, uint32_t limit_ms,
                   enum cn_address_kind kind)
{
    lobby->kind = kind;
    lobby->loop = loop;
    lobby->limit_ms = limit_ms;
    cn_list_init(&lobby->guests);
    cn_timer_init(&lobby->timer, on_time);
}

void
cn_grpc_lobby_add(struct cn_grpc_lobby *lobby, int fd, struct cn_client_address *from)
{
    struct guest *guest = cn_alloc(sizeof(*guest));
    bool is_first = cn_list_empty(&lobby->guests);

    if (lobby->n_guests == CN_GRPC_LOBBY_MAX)
        show_out(oldest(lobby));
    guest->lobby = lobby;
    guest->fd = fd;
    guest->from = from;
    guest->until_ms = cn_loop_now_ms(lobby->loop) + lobby->limit_ms;
    guest->watch.fn = on_bytes;
    cn_list_push_back(&lobby->guests, &guest->link);
    lobby->n_guests++;
    /* The watch reports bytes that are there already. */
    if (cn_loop_watch(lobby->loop, &guest->watch, fd, EPOLLIN | EPOLLRDHUP | EPOLLET, NULL)) {
        show_out(guest);
        return;
    }
    if (is_first)
        cn_timer_set(cn_loop_wheel(lobby->loop), &lobby->timer, guest->until_ms);
}

void
cn_grpc_lobby_fini(struct cn_grpc_lobby *lobby)
{
    if (!lobby->loop)
        return;
    cn_timer_cancel(&lobby->timer);
    while (!cn_list_empty(&lobby->guests))
        show_out(oldest(lobby));
}
