/* bench/connection.c - see connection.h. One thread owns all connections. */
#include "bench/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "bench/stream.h"

#define ANSWER_S 30 /* how long the handshake of a stream may wait for its answer */

int
request_template_init(struct request_template *t, const char *host, const char *path,
                      const char *header, const char *prefix)
{
    int head, n;

    head = snprintf(t->bytes, sizeof(t->bytes), "POST %s HTTP/1.1\r\nHost: %s\r\n%s: %s-", path,
                    host, header, prefix);
    if (head < 0 || (size_t)head >= sizeof(t->bytes))
        return -1;
    n = snprintf(t->bytes + head, sizeof(t->bytes) - (size_t)head,
                 "%0*d-%0*d\r\nContent-Length: 1\r\n\r\n0", SEQUENCE_DIGITS, 0, RETRY_DIGITS, 0);
    if (n < 0 || (size_t)(head + n) >= sizeof(t->bytes))
        return -1;
    t->sequence_at = (size_t)head;
    t->retry_at = t->sequence_at + SEQUENCE_DIGITS + 1;
    t->len = (size_t)(head + n);
    t->digit_at = t->len - 1;
    t->start_at = 0;
    t->wire = WIRE_HTTP;
    return 0;
}

/* All parts that change have a fixed length: JSON allows a space after "true". */
int
request_template_init_v2(struct request_template *t, const char *host, const char *model,
                         const char *prefix)
{
    static const char inputs[] =
        "},\"inputs\":[{\"name\":\"INPUT\",\"datatype\":\"INT32\",\"shape\":[1,1],\"data\":[0]}]}";
    uint32_t hash = 2166136261u; /* FNV-1a */
    char body[256];
    int id, body_len, n;

    for (const char *p = prefix; *p; p++)
        hash = (hash ^ (uint8_t)*p) * 16777619u;
    id = snprintf(body, sizeof(body), "{\"parameters\":{\"sequence_id\":%u",
                  (unsigned)(100000u + hash % 900000u));
    body_len = snprintf(body + id, sizeof(body) - (size_t)id, "%0*d%0*d,\"sequence_start\":false%s",
                        SEQUENCE_DIGITS, 0, RETRY_DIGITS, 0, inputs) +
               id;
    n = snprintf(
        t->bytes, sizeof(t->bytes),
        "POST /v2/models/%s/infer HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
        "Content-Length: %d\r\n\r\n%s",
        model, host, body_len, body);
    if (n < 0 || (size_t)n >= sizeof(t->bytes))
        return -1;
    t->len = (size_t)n;
    t->sequence_at = t->len - (size_t)(body_len - id);
    t->retry_at = t->sequence_at + SEQUENCE_DIGITS;
    t->digit_at = t->len - 5; /* before ]}]} */
    t->start_at = t->len - sizeof(inputs) + 1 - 5;
    t->wire = WIRE_HTTP;
    return 0;
}

void
answer_find_data(struct answer *out)
{
    static const char mark[] = "\"data\":[";
    const char *at = memmem(out->body, out->body_len, mark, sizeof(mark) - 1), *end;

    if (at == NULL)
        return;
    at += sizeof(mark) - 1;
    end = memchr(at, ']', (size_t)(out->body + out->body_len - at));
    if (end == NULL)
        return;
    out->body = at;
    out->body_len = (size_t)(end - at);
}

static void
put_digits(char *at, int digits, uint32_t value)
{
    while (digits-- > 0) {
        at[digits] = (char)('0' + value % 10);
        value /= 10;
    }
}

static void
put_sequence(struct connection *c, const struct request_template *t, uint32_t sequence,
             uint32_t retry)
{
    put_digits(c->request + t->sequence_at, SEQUENCE_DIGITS, sequence);
    put_digits(c->request + t->retry_at, RETRY_DIGITS, retry);
    c->sequence = sequence;
}

int
connection_open(struct connection *c, const struct sockaddr_in *address,
                const struct request_template *t, uint32_t sequence, uint32_t retry)
{
    const struct timeval limit = {.tv_sec = ANSWER_S};
    int one = 1;

    c->received = c->taken = 0;
    c->waiting = false;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return -1;
    put_sequence(c, t, sequence, retry);
    if (connect(c->fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ||
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0 ||
        setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0 ||
        (t->wire != WIRE_HTTP && stream_open(c, t) < 0) || fcntl(c->fd, F_SETFL, O_NONBLOCK) < 0) {
        connection_close(c);
        return -1;
    }
    return 0;
}

void
connection_close(struct connection *c)
{
    int keep = errno;

    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->waiting = false;
    errno = keep;
}

int
connection_send(struct connection *c, const struct request_template *t, uint32_t sequence,
                uint32_t retry, char number, bool first)
{
    c->waiting = true;
    if (t->wire != WIRE_HTTP)
        return stream_send(c, t, number);
    c->received = 0;
    put_sequence(c, t, sequence, retry);
    c->request[t->digit_at] = number;
    if (t->start_at > 0)
        memcpy(c->request + t->start_at, first ? "true " : "false", 5);
    /* These are a few hundred bytes on a socket with nothing in flight. If the socket does not take
     * all of them, it is broken. */
    if (send(c->fd, c->request, t->len, MSG_NOSIGNAL) != (ssize_t)t->len)
        return -1;
    return 0;
}

/* Returns the value of a header in [head, end), or NULL. `name` is in lower case and ends with its
 * colon. */
static const char *
find_header(const char *head, const char *end, const char *name, size_t name_len)
{
    const char *line = head;

    while ((line = memchr(line, '\n', (size_t)(end - line))) != NULL && ++line < end) {
        if ((*line | 0x20) == *name && (size_t)(end - line) > name_len &&
            strncasecmp(line, name, name_len) == 0) {
            line += name_len;
            while (line < end && *line == ' ')
                line++;
            return line;
        }
    }
    return NULL;
}

static int
parse_answer(struct connection *c, struct answer *out, const char **why)
{
    const char *end = memmem(c->answer, c->received, "\r\n\r\n", 4);
    const char *length, *closes;

    if (end == NULL) {
        *why = "headers over 4 kB";
        return c->received < sizeof(c->answer) - 1 ? 0 : -1;
    }
    end += 4;
    if (memcmp(c->answer, "HTTP/1.1 ", 9) != 0) {
        *why = "answer is not HTTP/1.1";
        return -1;
    }
    length = find_header(c->answer, end, "content-length:", 15);
    if (length == NULL) {
        *why = "answer without Content-Length";
        return -1;
    }
    out->body_len = strtoul(length, NULL, 10);
    if (out->body_len > sizeof(c->answer) - 1 - (size_t)(end - c->answer)) {
        *why = "answer over 4 kB";
        return -1;
    }
    if ((size_t)(c->answer + c->received - end) < out->body_len)
        return 0;
    out->status = atoi(c->answer + 9);
    out->body = end;
    closes = find_header(c->answer, end, "connection:", 11);
    out->closes = closes != NULL && strncasecmp(closes, "close", 5) == 0;
    return 1;
}

int
connection_receive(struct connection *c, const struct request_template *t, struct answer *out,
                   const char **why)
{
    ssize_t n;

    memmove(c->answer, c->answer + c->taken, c->received - c->taken);
    c->received -= c->taken;
    c->taken = 0;
    n = recv(c->fd, c->answer + c->received, sizeof(c->answer) - 1 - c->received, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        *why = n == 0 ? "connection closed" : strerror(errno);
        return -1;
    }
    c->received += (size_t)n;
    c->answer[c->received] = '\0';
    if (t->wire != WIRE_HTTP)
        return stream_answer(c, t, out, why);
    if (!c->waiting) {
        *why = "bytes that nobody asked for";
        return -1;
    }
    return parse_answer(c, out, why);
}
