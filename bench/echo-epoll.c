/* bench/echo-epoll.c - the barest echo: one thread, epoll, one recv and one send for each request.
 *
 * It looks for the end of the head and for Content-Length, and for nothing else. No server on
 * sockets and epoll can be faster, and what echo-mhd needs beyond it is HTTP. It takes requests of
 * up to 8 kB, and closes the connection of a larger one. With --busy-wait it polls and never
 * sleeps.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOM_BYTES 8192
#define HEAD_MAX_BYTES 128

struct conn {
    int fd; /* the listening socket has a struct conn, too */
    size_t got;
    char request[ROOM_BYTES + 1];
};

static void
die(const char *what)
{
    fprintf(stderr, "echo-epoll: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void
watch(int epoll_fd, struct conn *c)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};

    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event) < 0)
        die("epoll_ctl");
}

static void
accept_one(int epoll_fd, int listen_fd)
{
    struct conn *c = calloc(1, sizeof(*c));
    int one = 1;

    c->fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (c->fd < 0) {
        free(c);
        return;
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    watch(epoll_fd, c);
}

/* Sends the body back. Returns false if the connection must be closed. */
static bool
send_back(const struct conn *c, const char *body, size_t len)
{
    char answer[HEAD_MAX_BYTES + ROOM_BYTES];
    int head =
        snprintf(answer, HEAD_MAX_BYTES, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", len);

    memcpy(answer + head, body, len);
    return send(c->fd, answer, (size_t)head + len, MSG_NOSIGNAL) == (ssize_t)((size_t)head + len);
}

/* Answers the request if all of it is there. Returns false if the connection must be closed. */
static bool
answer(struct conn *c)
{
    const char *end = memmem(c->request, c->got, "\r\n\r\n", 4), *field;
    size_t head, len;

    c->request[c->got] = '\0';
    if (end == NULL)
        return c->got < ROOM_BYTES;
    field = strcasestr(c->request, "\r\nContent-Length:");
    head = (size_t)(end + 4 - c->request);
    len = field && field < end ? strtoul(field + 17, NULL, 10) : 0;
    if (len > ROOM_BYTES - head)
        return false;
    if (c->got < head + len)
        return true;
    c->got = 0;
    return send_back(c, c->request + head, len);
}

static void
receive(struct conn *c)
{
    ssize_t n = recv(c->fd, c->request + c->got, ROOM_BYTES - c->got, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        c->got += (size_t)n;
        if (answer(c))
            return;
    }
    close(c->fd);
    free(c);
}

int
main(int argc, char **argv)
{
    bool polls = argc == 2 && strcmp(argv[1], "--busy-wait") == 0;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    struct conn listener = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[256];

    if (argc > 1 && !polls) {
        fputs("usage: echo-epoll [--busy-wait]\n", stderr);
        return 2;
    }
    if (listener.fd < 0 || bind(listener.fd, (struct sockaddr *)&address, len) < 0 ||
        listen(listener.fd, 1024) < 0 ||
        getsockname(listener.fd, (struct sockaddr *)&address, &len) < 0)
        die("listen");
    watch(epoll_fd, &listener);
    printf("echo-epoll ready: port=%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int n = epoll_wait(epoll_fd, events, 256, polls ? 0 : -1);

        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == &listener)
                accept_one(epoll_fd, listener.fd);
            else
                receive(events[i].data.ptr);
        }
    }
}
