/* store/valkey/valkey_wire.c - connects to a server, sends commands and reads replies. The
 * link's thread.
 *
 * The socket does not block; each wait is a poll that ends at the call's deadline. Sockets' own
 * timeouts would not do: they bound each read, and a server that sends a byte now and then would
 * never be too slow. */
#include "store/valkey/valkey_wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/time/clock.h"

#define READ_BYTES 65536
#define KEEPALIVE_IDLE_S 10 /* a peer whose machine is gone is noticed after 16 s of silence */
#define OUT_KEEP_BYTES (1u << 20)

void
cn_wire_init(struct cn_valkey_wire *wire, const struct cn_hiredis *lib,
             const struct cn_shared_options *options)
{
    memset(wire, 0, sizeof(*wire));
    wire->lib = lib;
    wire->tls = options->tls;
    wire->timeout_ms = options->timeout_ms;
    wire->fd = -1;
    cn_buf_init(&wire->out, 0);
}

void
cn_wire_fini(struct cn_valkey_wire *wire)
{
    cn_wire_drop(wire);
    cn_buf_fini(&wire->out);
    cn_lookup_forget(wire->lookup);
    wire->lookup = NULL;
}

void
cn_wire_drop(struct cn_valkey_wire *wire)
{
    cn_tls_close(wire->session);
    wire->session = NULL;
    if (wire->fd >= 0)
        close(wire->fd);
    wire->fd = -1;
    if (wire->reader)
        wire->lib->destroy(wire->reader);
    wire->reader = NULL;
    cn_buf_reset(&wire->out);
    wire->n_out = 0;
}

int
cn_wire_fail(const struct cn_valkey_wire *wire, int code, struct cn_error *err, const char *fmt,
             ...)
{
    char why[700];
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    return cn_fail(err, code, "%s %s", wire->peer, why);
}

/* The connection cannot be used now; another one may do. */
#define fail_io(wire, err, ...) cn_wire_fail(wire, CN_E_STORE_UNREACHABLE, err, __VA_ARGS__)

/* --- commands and replies */

void
cn_wire_command(struct cn_valkey_wire *wire, uint32_t n)
{
    cn_buf_puts(&wire->out, "*");
    cn_buf_put_uint(&wire->out, n);
    cn_buf_puts(&wire->out, "\r\n");
    wire->n_out++;
}

void
cn_wire_word(struct cn_valkey_wire *wire, struct cn_str word)
{
    cn_buf_puts(&wire->out, "$");
    cn_buf_put_uint(&wire->out, word.len);
    cn_buf_puts(&wire->out, "\r\n");
    cn_buf_append_str(&wire->out, word);
    cn_buf_puts(&wire->out, "\r\n");
}

static int
send_some(struct cn_valkey_wire *wire, size_t *sent, struct cn_error *err)
{
    const char *from = wire->out.data + *sent;
    const size_t len = wire->out.len - *sent;
    char why[CN_TLS_WHY_MAX];
    ssize_t n = wire->session ? cn_tls_send(wire->session, from, len, why)
                              : send(wire->fd, from, len, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n >= 0)
        *sent += (size_t)n;
    else if (wire->session)
        return cn_wire_fail(wire, (int)n, err, "%s", why);
    else if (errno != EAGAIN && errno != EINTR)
        return fail_io(wire, err, "closed the connection: %s", strerror(errno));
    return 0;
}

/* Returns the number of bytes; 0: there are none now; or an error. */
static ssize_t
receive(struct cn_valkey_wire *wire, char *bytes, size_t max, struct cn_error *err)
{
    char why[CN_TLS_WHY_MAX];
    ssize_t n = wire->session ? cn_tls_receive(wire->session, bytes, max, why)
                              : recv(wire->fd, bytes, max, MSG_DONTWAIT);

    if (wire->session)
        return n >= 0 ? n : cn_wire_fail(wire, (int)n, err, "%s", why);
    if (n == 0)
        return fail_io(wire, err, "closed the connection");
    if (n < 0)
        return errno == EAGAIN || errno == EINTR
                   ? 0
                   : fail_io(wire, err, "cannot be read: %s", strerror(errno));
    return n;
}

static int
read_some(struct cn_valkey_wire *wire, struct cn_error *err)
{
    char bytes[READ_BYTES];
    ssize_t n = receive(wire, bytes, sizeof(bytes), err);

    if (n <= 0)
        return (int)n;
    if (wire->lib->feed(wire->reader, bytes, (size_t)n) != REDIS_OK)
        return fail_io(wire, err, "sent what is not a reply: %s", wire->reader->errstr);
    return 0;
}

/* Passes on the replies that have arrived, until there are `max` of them. */
static int
take_replies(struct cn_valkey_wire *wire, cn_valkey_reply_fn on_reply, void *ctx, uint32_t *taken,
             uint32_t max, struct cn_error *err)
{
    void *reply = NULL;

    while (*taken < max) {
        if (wire->lib->reply(wire->reader, &reply) != REDIS_OK)
            return fail_io(wire, err, "sent what is not a reply: %s", wire->reader->errstr);
        if (!reply)
            return 0;
        on_reply(ctx, (*taken)++, reply);
        wire->lib->free_reply(reply);
    }
    return 0;
}

int
cn_wire_talk(struct cn_valkey_wire *wire, cn_valkey_reply_fn on_reply, void *ctx,
             uint64_t deadline_us, struct cn_error *err)
{
    uint32_t taken = 0;
    size_t sent = 0;
    int rc = 0;

    if (wire->out.failed)
        rc = cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a command to the state store");
    while (rc == 0 && taken < wire->n_out) {
        if (sent < wire->out.len)
            rc = send_some(wire, &sent, err);
        if (rc == 0 && !cn_wait_for_fd(wire->fd, sent < wire->out.len ? POLLIN | POLLOUT : POLLIN,
                                       deadline_us))
            rc = fail_io(wire, err, "did not answer within %u ms (state.storeTimeoutMSec)",
                         wire->timeout_ms);
        if (rc == 0)
            rc = read_some(wire, err);
        if (rc == 0)
            rc = take_replies(wire, on_reply, ctx, &taken, wire->n_out, err);
    }
    cn_buf_reset(&wire->out);
    if (wire->out.cap > OUT_KEEP_BYTES)
        cn_buf_fini(&wire->out);
    wire->n_out = 0;
    if (rc != 0)
        cn_wire_drop(wire);
    return rc;
}

int
cn_wire_hear(struct cn_valkey_wire *wire, cn_valkey_reply_fn on_reply, void *ctx,
             struct cn_error *err)
{
    uint32_t taken = 0;
    int rc = read_some(wire, err);

    if (rc == 0)
        rc = take_replies(wire, on_reply, ctx, &taken, UINT32_MAX, err);
    if (rc != 0)
        cn_wire_drop(wire);
    return rc;
}

bool
cn_valkey_is_error(const redisReply *reply, const char *word)
{
    const size_t len = strlen(word);

    return reply->type == REDIS_REPLY_ERROR && (size_t)reply->len >= len &&
           memcmp(reply->str, word, len) == 0;
}

struct cn_str
cn_valkey_text(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_STATUS &&
        reply->type != REDIS_REPLY_ERROR)
        return (struct cn_str){"", 0};
    return (struct cn_str){reply->str, (size_t)reply->len};
}

/* --- connecting */

/* Connects to one address. Returns 0 or the errno. */
static int
connect_address(struct cn_valkey_wire *wire, const struct addrinfo *at, uint64_t deadline_us)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = 0, on = 1, idle_s = KEEPALIVE_IDLE_S, every_s = 2, count = 3;
    socklen_t len = sizeof(error);

    if (fd < 0)
        return errno;
    if (connect(fd, at->ai_addr, at->ai_addrlen) != 0)
        error = errno;
    if (error == EINPROGRESS) {
        if (!cn_wait_for_fd(fd, POLLOUT, deadline_us))
            error = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
            error = errno;
    }
    if (error != 0) {
        close(fd);
        return error;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    wire->fd = fd;
    return 0;
}

int
cn_wire_connect(struct cn_valkey_wire *wire, const char *what, const struct cn_shared_host *to,
                uint64_t deadline_us, struct cn_error *err)
{
    struct addrinfo *found = NULL;
    int rc, error = ETIMEDOUT;
    char why[CN_TLS_WHY_MAX];

    snprintf(wire->peer, sizeof(wire->peer), "%s at %s:%u", what, to->host, to->port);
    if ((rc = cn_lookup_host(&wire->lookup, to->host, to->port, deadline_us, &found)) != 0)
        return fail_io(wire, err, "has no address: %s", gai_strerror(rc));
    for (const struct addrinfo *at = found; at && wire->fd < 0; at = at->ai_next)
        error = connect_address(wire, at, deadline_us);
    freeaddrinfo(found);
    if (wire->fd < 0)
        return fail_io(wire, err, "cannot be reached: %s", strerror(error));
    wire->reader = wire->lib->create();
    if (!wire->reader) {
        cn_wire_drop(wire);
        return cn_fail(err, CN_E_OUT_OF_MEMORY,
                       "not enough memory to read the state store's replies");
    }
    if (!wire->tls)
        return 0;
    rc = cn_tls_open(wire->tls, wire->fd, to->host, deadline_us, &wire->session, why);
    if (rc == 0)
        return 0;
    cn_wire_drop(wire);
    return cn_wire_fail(wire, rc, err, "%s", why);
}
