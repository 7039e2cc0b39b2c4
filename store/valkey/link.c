/* store/valkey/link.c - connects to the shared store, sends commands and reads replies. Worker's
 * thread.
 *
 * The socket does not block; each wait is a poll that ends at the call's deadline. Sockets' own
 * timeouts would not do: they bound each read, and a server that sends a byte now and then would
 * never be too slow. */
#include "store/valkey/link.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "store/valkey/fitness.h"

#define FAIL_FAST_US 100000 /* after a wait in vain, calls fail at once for this time */
#define RETRY_US 20000      /* pause between two attempts to connect */
#define READ_BYTES 65536
#define OUT_KEEP_BYTES (1u << 20)

static const struct cn_shared_host *
host_of(const struct cn_valkey_link *link)
{
    return &link->hosts[link->host];
}

/* Fails because of the host that is being used. */
static int __attribute__((format(printf, 3, 4)))
fail_host(struct cn_valkey_link *link, struct cn_error *err, const char *fmt, ...)
{
    char why[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    return cn_fail(err, CN_E_STORE_UNREACHABLE, "the state store at %s:%u %s", host_of(link)->host,
                   host_of(link)->port, why);
}

int
cn_valkey_link_init(struct cn_valkey_link *link, const struct cn_shared_options *options,
                    const char *script, struct cn_error *err)
{
    memset(link, 0, sizeof(*link));
    link->fd = -1;
    link->script = script;
    link->options = *options;
    link->options.n_hosts =
        options->n_hosts < CN_VALKEY_HOSTS_MAX ? options->n_hosts : CN_VALKEY_HOSTS_MAX;
    for (uint32_t i = 0; i < link->options.n_hosts; i++)
        link->hosts[i] = (struct cn_shared_host){.host = cn_strdup(options->hosts[i].host),
                                                 .port = options->hosts[i].port};
    link->options.hosts = link->hosts;
    link->options.user = cn_strdup(options->user);
    link->options.password = cn_strdup(options->password);
    link->options.prefix = cn_strdup(options->prefix);
    link->options.model = cn_strdup(options->model);
    link->options.version = cn_strdup(options->version);
    cn_buf_init(&link->out, 0);
    return cn_hiredis_open(&link->lib, err);
}

void
cn_valkey_link_fini(struct cn_valkey_link *link)
{
    cn_valkey_link_drop(link);
    cn_buf_fini(&link->out);
    for (uint32_t i = 0; i < link->options.n_hosts; i++)
        cn_free((void *)(uintptr_t)link->hosts[i].host);
    cn_free((void *)(uintptr_t)link->options.user);
    cn_free((void *)(uintptr_t)link->options.password);
    cn_free((void *)(uintptr_t)link->options.prefix);
    cn_free((void *)(uintptr_t)link->options.model);
    cn_free((void *)(uintptr_t)link->options.version);
}

void
cn_valkey_link_drop(struct cn_valkey_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    if (link->reader)
        link->lib->destroy(link->reader);
    link->reader = NULL;
    cn_buf_reset(&link->out);
    link->n_out = 0;
}

uint64_t
cn_valkey_deadline_us(const struct cn_valkey_link *link)
{
    return cn_now_us() + (uint64_t)link->options.timeout_ms * 1000;
}

/* --- commands and replies */

void
cn_valkey_command(struct cn_valkey_link *link, uint32_t n)
{
    cn_buf_puts(&link->out, "*");
    cn_buf_put_uint(&link->out, n);
    cn_buf_puts(&link->out, "\r\n");
    link->n_out++;
}

void
cn_valkey_word(struct cn_valkey_link *link, struct cn_str word)
{
    cn_buf_puts(&link->out, "$");
    cn_buf_put_uint(&link->out, word.len);
    cn_buf_puts(&link->out, "\r\n");
    cn_buf_append_str(&link->out, word);
    cn_buf_puts(&link->out, "\r\n");
}

/* Waits for `events` until the deadline. Returns 1, or 0 when the time is over. */
static int
wait_for(int fd, short events, uint64_t deadline_us)
{
    struct pollfd watched = {.fd = fd, .events = events};

    for (;;) {
        const uint64_t now = cn_now_us();
        int n;

        if (now >= deadline_us)
            return 0;
        n = poll(&watched, 1, (int)((deadline_us - now + 999) / 1000));
        if (n > 0 || (n < 0 && errno != EINTR))
            return 1; /* the next read or write reports an error */
    }
}

static int
send_some(struct cn_valkey_link *link, size_t *sent, struct cn_error *err)
{
    ssize_t n =
        send(link->fd, link->out.data + *sent, link->out.len - *sent, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n >= 0)
        *sent += (size_t)n;
    else if (errno != EAGAIN && errno != EINTR)
        return fail_host(link, err, "closed the connection: %s", strerror(errno));
    return 0;
}

static int
read_some(struct cn_valkey_link *link, struct cn_error *err)
{
    char bytes[READ_BYTES];
    ssize_t n = recv(link->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (n == 0)
        return fail_host(link, err, "closed the connection");
    if (n < 0)
        return errno == EAGAIN || errno == EINTR
                   ? 0
                   : fail_host(link, err, "cannot be read: %s", strerror(errno));
    if (link->lib->feed(link->reader, bytes, (size_t)n) != REDIS_OK)
        return fail_host(link, err, "sent what is not a reply: %s", link->reader->errstr);
    return 0;
}

/* Passes on the replies that have arrived. */
static int
take_replies(struct cn_valkey_link *link, cn_valkey_reply_fn on_reply, void *ctx, uint32_t *taken,
             struct cn_error *err)
{
    void *reply = NULL;

    while (*taken < link->n_out) {
        if (link->lib->reply(link->reader, &reply) != REDIS_OK)
            return fail_host(link, err, "sent what is not a reply: %s", link->reader->errstr);
        if (!reply)
            return 0;
        on_reply(ctx, (*taken)++, reply);
        link->lib->free_reply(reply);
    }
    return 0;
}

/* The wait was in vain, and further calls should not wait at once again. */
static void
note_failure(struct cn_valkey_link *link, const struct cn_error *err)
{
    link->failed_us = cn_now_us();
    if (err != &link->failure)
        link->failure = *err;
}

int
cn_valkey_talk(struct cn_valkey_link *link, cn_valkey_reply_fn on_reply, void *ctx,
               uint64_t deadline_us, struct cn_error *err)
{
    uint32_t taken = 0;
    size_t sent = 0;
    int rc = 0;

    if (link->out.failed)
        rc = cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a command to the state store");
    while (rc == 0 && taken < link->n_out) {
        if (sent < link->out.len)
            rc = send_some(link, &sent, err);
        if (rc == 0 &&
            !wait_for(link->fd, sent < link->out.len ? POLLIN | POLLOUT : POLLIN, deadline_us))
            rc = fail_host(link, err, "did not answer within %u ms (state.storeTimeoutMSec)",
                           link->options.timeout_ms);
        if (rc == 0)
            rc = read_some(link, err);
        if (rc == 0)
            rc = take_replies(link, on_reply, ctx, &taken, err);
    }
    cn_buf_reset(&link->out);
    if (link->out.cap > OUT_KEEP_BYTES)
        cn_buf_fini(&link->out);
    link->n_out = 0;
    if (rc != 0)
        cn_valkey_link_drop(link);
    if (rc != 0 && cn_now_us() >= deadline_us)
        note_failure(link, err);
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
connect_address(struct cn_valkey_link *link, const struct addrinfo *at, uint64_t deadline_us)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = 0, on = 1;
    socklen_t len = sizeof(error);

    if (fd < 0)
        return errno;
    if (connect(fd, at->ai_addr, at->ai_addrlen) != 0)
        error = errno;
    if (error == EINPROGRESS) {
        if (!wait_for(fd, POLLOUT, deadline_us))
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
    link->fd = fd;
    return 0;
}

/* Connects to the current host. Finding its address may take longer than the deadline, if the
 * system's resolver does. */
static int
connect_host(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rc, error = ETIMEDOUT;
    char port[8];

    snprintf(port, sizeof(port), "%u", host_of(link)->port);
    if ((rc = getaddrinfo(host_of(link)->host, port, &wanted, &found)) != 0)
        return fail_host(link, err, "has no address: %s", gai_strerror(rc));
    for (const struct addrinfo *at = found; at && link->fd < 0; at = at->ai_next)
        error = connect_address(link, at, deadline_us);
    freeaddrinfo(found);
    if (link->fd < 0)
        return fail_host(link, err, "cannot be reached: %s", strerror(error));
    link->reader = link->lib->create();
    if (link->reader)
        return 0;
    cn_valkey_link_drop(link);
    return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory to read the state store's replies");
}

static void
take_digest(void *ctx, uint32_t i, const redisReply *reply)
{
    struct cn_valkey_link *link = ctx;

    (void)i;
    link->digest[0] = '\0';
    if (reply->type == REDIS_REPLY_STRING && reply->len == CN_VALKEY_DIGEST_LEN)
        memcpy(link->digest, reply->str, CN_VALKEY_DIGEST_LEN + 1);
}

int
cn_valkey_load_script(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    int rc;

    cn_valkey_command(link, 3);
    cn_valkey_word(link, CN_STR("SCRIPT"));
    cn_valkey_word(link, CN_STR("LOAD"));
    cn_valkey_word(link, cn_str_from(link->script));
    if ((rc = cn_valkey_talk(link, take_digest, link, deadline_us, err)) != 0)
        return rc;
    if (link->digest[0])
        return 0;
    return cn_fail(err, CN_E_STATE_STORE,
                   "the state store at %s:%u does not take the script of conditional writes; its "
                   "user needs the commands that docs/shared-store.md lists",
                   host_of(link)->host, host_of(link)->port);
}

/* Connects to the current host and finds out whether it is fit. */
static int
try_host(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    int rc = connect_host(link, deadline_us, err);

    if (rc == 0)
        rc = cn_valkey_check_server(link, deadline_us, err);
    if (rc == 0)
        rc = cn_valkey_load_script(link, deadline_us, err);
    if (rc != 0)
        cn_valkey_link_drop(link);
    return rc;
}

/* Tries each host once, beginning with the one that was the primary last. Each gets an equal share
 * of the time that is left. */
static int
try_hosts(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    const uint32_t n = link->options.n_hosts;
    int rc = CN_E_STORE_UNREACHABLE;

    for (uint32_t i = 0; i < n; i++) {
        const uint64_t now = cn_now_us();
        const uint64_t left = deadline_us > now ? deadline_us - now : 0;

        rc = try_host(link, now + left / (n - i), err);
        if (rc != CN_E_STORE_UNREACHABLE)
            return rc;
        link->host = (link->host + 1) % n;
    }
    return rc;
}

int
cn_valkey_link_ready(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    const bool was_down = link->failed_us != 0;
    struct cn_error last = {0}, why = {0};
    int rc;

    if (link->fd >= 0)
        return 0;
    if (was_down && cn_now_us() - link->failed_us < FAIL_FAST_US) {
        if (err)
            *err = link->failure;
        return link->failure.code;
    }
    /* The first call that finds the store down tries again until its deadline. While the store
     * stays down, each later call tries once. The error is that of the last attempt that had enough
     * time: one that the deadline cut short only knows that the time was over. */
    for (;;) {
        rc = try_hosts(link, deadline_us, &last);
        if (!why.code || cn_now_us() < deadline_us)
            why = last;
        if (rc != CN_E_STORE_UNREACHABLE || was_down || cn_now_us() + RETRY_US >= deadline_us)
            break;
        usleep(RETRY_US);
    }
    link->failure = why;
    link->failed_us = rc == 0 ? 0 : cn_now_us();
    if (rc != 0 && err)
        *err = link->failure;
    return rc;
}
