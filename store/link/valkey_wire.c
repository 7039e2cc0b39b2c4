/* store/link/valkey_wire.c - connects to a server, sends commands and reads replies. The
 * link's thread.
 *
 * The socket does not block; each wait is a poll that ends at the call's deadline. Sockets' own
 * timeouts would not do: they bound each read, and a server that sends a byte now and then would
 * never be too slow.
 *
 * A command is an array of words in the protocol RESP, each with its length in front. SET with a
 * key and a value is
 *   *3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhello\r\n
 * Lengths instead of quotes mean that a word may have any bytes, so states are sent as they are.
 *
 * A talk sends commands and counts their replies; cn_wire_talk_all() holds several talks with
 * different servers at once, with one poll for all of them. A connection on which a talk has failed
 * is dropped, because replies to it could still come and would be taken for those of the next
 * commands. */
#include "store/link/valkey_wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/errors/panic.h"

#define READ_BYTES 65536
#define KEEPALIVE_IDLE_S 10 /* a peer whose machine is gone is noticed after 16 s of silence */

void
cn_wire_init(struct cn_valkey_wire *wire, const struct cn_hiredis *lib,
             const struct cn_shared_options *options)
{
    memset(wire, 0, sizeof(*wire));
    wire->lib = lib;
    wire->options = options;
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
cn_wire_put_command(struct cn_buf *out, uint32_t n)
{
    cn_buf_puts(out, "*");
    cn_buf_put_uint(out, n);
    cn_buf_puts(out, "\r\n");
}

void
cn_wire_put_word(struct cn_buf *out, struct cn_str word)
{
    cn_buf_puts(out, "$");
    cn_buf_put_uint(out, word.len);
    cn_buf_puts(out, "\r\n");
    cn_buf_append_str(out, word);
    cn_buf_puts(out, "\r\n");
}

void
cn_wire_command(struct cn_valkey_wire *wire, uint32_t n)
{
    cn_wire_put_command(&wire->out, n);
    wire->n_out++;
}

void
cn_wire_word(struct cn_valkey_wire *wire, struct cn_str word)
{
    cn_wire_put_word(&wire->out, word);
}

void
cn_wire_login(struct cn_valkey_wire *wire)
{
    const struct cn_shared_options *options = wire->options;

    cn_wire_command(wire, options->user[0] ? 3 : 2);
    cn_wire_word(wire, CN_STR("AUTH"));
    if (options->user[0])
        cn_wire_word(wire, cn_str_from(options->user));
    cn_wire_word(wire, cn_str_from(options->password));
}

/* A server that wants TLS closes a connection without it at the first command, and may send an
 * alert before. So the message says what to try, unless the server has answered before. */
static const char *
may_want_tls(const struct cn_valkey_wire *wire)
{
    return wire->options->tls || wire->heard
               ? ""
               : " before it answered; if it speaks TLS on this port, begin the URL with rediss:// "
                 "or valkeys:// (rediss+sentinel:// for Sentinels, rediss+cluster:// for a "
                 "cluster)";
}

static int
send_some(struct cn_wire_talk *talk)
{
    struct cn_valkey_wire *wire = talk->wire;
    struct cn_error *err = talk->err;
    const char *from = talk->commands.ptr + talk->sent;
    const size_t len = talk->commands.len - talk->sent;
    char why[CN_TLS_WHY_MAX];
    ssize_t n = wire->session ? cn_tls_send(wire->session, from, len, why)
                              : send(wire->fd, from, len, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n >= 0)
        talk->sent += (size_t)n;
    else if (wire->session)
        return cn_wire_fail(wire, (int)n, err, "%s", why);
    else if (errno != EAGAIN && errno != EINTR)
        return fail_io(wire, err, "closed the connection%s: %s", may_want_tls(wire),
                       strerror(errno));
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
        return fail_io(wire, err, "closed the connection%s", may_want_tls(wire));
    if (n < 0 && errno == ECONNRESET)
        return fail_io(wire, err, "reset the connection%s", may_want_tls(wire));
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
        return fail_io(wire, err, "sent what is not a reply%s: %s", may_want_tls(wire),
                       wire->reader->errstr);
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
            return fail_io(wire, err, "sent what is not a reply%s: %s", may_want_tls(wire),
                           wire->reader->errstr);
        if (!reply)
            return 0;
        wire->heard = true;
        on_reply(ctx, (*taken)++, reply);
        wire->lib->free_reply(reply);
    }
    return 0;
}

static bool
is_open(const struct cn_wire_talk *talk)
{
    return talk->rc == 0 && talk->taken < talk->n;
}

/* Sends what can be sent, and says what to wait for. */
static void
talk_on(struct cn_wire_talk *talk, struct pollfd *watched)
{
    *watched = (struct pollfd){.fd = -1};
    if (is_open(talk) && talk->sent < talk->commands.len)
        talk->rc = send_some(talk);
    if (!is_open(talk))
        return;
    watched->fd = talk->wire->fd;
    watched->events = talk->sent < talk->commands.len ? POLLIN | POLLOUT : POLLIN;
}

static void
listen_to(struct cn_wire_talk *talk)
{
    talk->rc = read_some(talk->wire, talk->err);
    if (talk->rc == 0)
        talk->rc =
            take_replies(talk->wire, talk->on_reply, talk->ctx, &talk->taken, talk->n, talk->err);
}

static void
end_late(struct cn_wire_talk *talk)
{
    if (is_open(talk))
        talk->rc =
            fail_io(talk->wire, talk->err, "did not answer within %u ms (state.storeTimeoutMSec)",
                    talk->wire->options->timeout_ms);
}

bool
cn_wire_talk_some(struct cn_wire_talk *talks, uint32_t n)
{
    struct pollfd watched;
    bool over = true;

    for (uint32_t i = 0; i < n; i++) {
        talk_on(&talks[i], &watched);
        if (is_open(&talks[i]))
            listen_to(&talks[i]);
        over &= !is_open(&talks[i]);
    }
    return over;
}

void
cn_wire_talk_all(struct cn_wire_talk *talks, uint32_t n, uint64_t deadline_us)
{
    struct pollfd watched[CN_WIRE_TALKS_MAX];

    cn_assert(n <= CN_WIRE_TALKS_MAX);
    for (;;) {
        bool open = false;

        for (uint32_t i = 0; i < n; i++) {
            talk_on(&talks[i], &watched[i]);
            open |= is_open(&talks[i]);
        }
        if (!open)
            break;
        if (!cn_wait_for_fds(watched, n, deadline_us)) {
            for (uint32_t i = 0; i < n; i++)
                end_late(&talks[i]);
            break;
        }
        for (uint32_t i = 0; i < n; i++)
            if (watched[i].fd >= 0 && watched[i].revents)
                listen_to(&talks[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        if (talks[i].rc != 0)
            cn_wire_drop(talks[i].wire);
}

int
cn_wire_talk(struct cn_valkey_wire *wire, cn_valkey_reply_fn on_reply, void *ctx,
             uint64_t deadline_us, struct cn_error *err)
{
    struct cn_wire_talk talk = {.wire = wire,
                                .commands = cn_buf_str(&wire->out),
                                .n = wire->n_out,
                                .on_reply = on_reply,
                                .ctx = ctx,
                                .err = err};

    if (wire->out.failed)
        talk.rc =
            cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a command to the state store");
    cn_wire_talk_all(&talk, 1, deadline_us);
    cn_buf_reset(&wire->out);
    wire->n_out = 0;
    return talk.rc;
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
    if (!wire->options->tls)
        return 0;
    rc = cn_tls_open(wire->options->tls, wire->fd, to->host, deadline_us, &wire->session, why);
    if (rc == 0)
        return 0;
    cn_wire_drop(wire);
    return cn_wire_fail(wire, rc, err, "%s", why);
}
