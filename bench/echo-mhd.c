/* bench/echo-mhd.c - a bare echo: libmicrohttpd alone, which answers each POST with its own body.
 * No server on this library can be faster.
 *
 * It is arranged like the server: N loop threads, each with its own SO_REUSEPORT socket, its own
 * daemon in external epoll mode, and 8 kB of memory for each connection. It has no scheduler, no
 * worker and no state, so only HTTP and the kernel remain. The server speaks HTTP itself
 * (docs/decisions/0067); the echo stays what it was, so that ratios to it can be compared.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define POOL_BYTES 8192
#define BODY_MAX_BYTES 16777216

struct upload {
    size_t len, room; /* the size of `more` is `room` */
    char bytes[256];  /* a longer body is in `more`, on the heap */
    char *more;
};

struct echo_loop {
    pthread_t thread;
    int listen_fd;
};

/* Returns the length that the client announces, or 0 if it announces none or too much. */
static size_t
announced(struct MHD_Connection *connection)
{
    const char *text = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    unsigned long len = text ? strtoul(text, NULL, 10) : 0;

    return len <= BODY_MAX_BYTES ? len : 0;
}

static enum MHD_Result
answer(void *ctx, struct MHD_Connection *connection, const char *url, const char *method,
       const char *version, const char *data, size_t *data_len, void **request)
{
    struct upload *up = *request;
    struct MHD_Response *response;
    enum MHD_Result rc;

    (void)ctx, (void)url, (void)method, (void)version;
    if (up == NULL) {
        *request = up = malloc(sizeof(*up));
        if (up == NULL)
            return MHD_NO;
        up->len = up->room = 0;
        up->more = NULL;
        return MHD_YES;
    }
    if (*data_len > 0) {
        if (up->more == NULL && up->len + *data_len > sizeof(up->bytes)) {
            up->room = announced(connection);
            up->more = malloc(up->room ? up->room : 1);
            if (up->more == NULL || up->room < up->len)
                return MHD_NO;
            memcpy(up->more, up->bytes, up->len);
        }
        if (up->len + *data_len > (up->more ? up->room : sizeof(up->bytes)))
            return MHD_NO;
        memcpy((up->more ? up->more : up->bytes) + up->len, data, *data_len);
        up->len += *data_len;
        *data_len = 0;
        return MHD_YES;
    }
    response =
        MHD_create_response_from_buffer(up->len, up->more ? up->more : up->bytes,
                                        up->more ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_MUST_COPY);
    if (response == NULL)
        return MHD_NO;
    up->more = NULL; /* it belongs to the response now */
    rc = MHD_queue_response(connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return rc;
}

static void
completed(void *ctx, struct MHD_Connection *connection, void **request,
          enum MHD_RequestTerminationCode why)
{
    struct upload *up = *request;

    (void)ctx, (void)connection, (void)why;
    if (up != NULL) {
        free(up->more);
        free(up);
    }
    *request = NULL;
}

/* Waits for libmicrohttpd's epoll set and then lets libmicrohttpd work, again and again. */
static void *
loop_main(void *arg)
{
    struct echo_loop *loop = arg;
    struct epoll_event event = {.events = EPOLLIN}, events[16];
    int outer = epoll_create1(EPOLL_CLOEXEC);
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_EPOLL, 0, NULL, NULL, answer, NULL, MHD_OPTION_LISTEN_SOCKET, loop->listen_fd,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES, MHD_OPTION_CONNECTION_LIMIT, 10000u,
        MHD_OPTION_NOTIFY_COMPLETED, completed, NULL, MHD_OPTION_END);
    const union MHD_DaemonInfo *info;

    if (daemon == NULL || outer < 0) {
        fputs("echo-mhd: the daemon does not start\n", stderr);
        exit(1);
    }
    info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (info == NULL || epoll_ctl(outer, EPOLL_CTL_ADD, info->epoll_fd, &event) < 0) {
        fputs("echo-mhd: no epoll set to watch\n", stderr);
        exit(1);
    }
    for (;;) {
        MHD_UNSIGNED_LONG_LONG timeout_ms;
        int wait_ms = -1;

        if (MHD_get_timeout(daemon, &timeout_ms) == MHD_YES)
            wait_ms = timeout_ms > 1000 ? 1000 : (int)timeout_ms;
        if (epoll_wait(outer, events, 16, wait_ms) < 0 && errno != EINTR)
            exit(1);
        MHD_run(daemon);
    }
    return NULL;
}

static int
listen_on(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(*port)};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 1024) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) < 0) {
        fprintf(stderr, "echo-mhd: port %u: %s\n", *port, strerror(errno));
        exit(1);
    }
    *port = ntohs(address.sin_port);
    return fd;
}

int
main(int argc, char **argv)
{
    static const struct option flags[] = {{"port", 1, NULL, 'p'},
                                          {"loops", 1, NULL, 'l'},
                                          {"help", 0, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    uint16_t port = 0;
    int n_loops = 1, c;
    struct echo_loop *loops;

    while ((c = getopt_long(argc, argv, "", flags, NULL)) != -1) {
        if (c == 'p') {
            port = (uint16_t)atoi(optarg);
        } else if (c == 'l') {
            n_loops = atoi(optarg);
        } else {
            fputs("usage: echo-mhd [--port N] [--loops N]\n", c == 'h' ? stdout : stderr);
            return c == 'h' ? 0 : 2;
        }
    }
    if (n_loops < 1 || n_loops > 64) {
        fputs("echo-mhd: --loops goes from 1 to 64\n", stderr);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    loops = calloc((size_t)n_loops, sizeof(*loops));
    for (int i = 0; i < n_loops; i++)
        loops[i].listen_fd = listen_on(&port);
    for (int i = 0; i < n_loops; i++)
        if (pthread_create(&loops[i].thread, NULL, loop_main, &loops[i]) != 0)
            return 1;
    printf("echo-mhd ready. port=%u pid=%d loops=%d\n", port, (int)getpid(), n_loops);
    fflush(stdout);
    for (int i = 0; i < n_loops; i++)
        pthread_join(loops[i].thread, NULL);
    return 0;
}
