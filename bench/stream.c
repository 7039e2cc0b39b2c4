/* bench/stream.c - see stream.h. */
#include "bench/stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define TEXT 0x81 /* one frame with a whole message */
#define BINARY 0x82
#define CLOSE 0x88 /* frames of the protocol itself */
#define PING 0x89
#define PONG 0x8a
#define MASKED 0x80 /* in the second byte: the bytes of the mask follow */

int
request_template_init_stream(struct request_template *t, const char *host, const char *model,
                             const char *prefix, enum wire wire)
{
    int head = snprintf(t->bytes, sizeof(t->bytes), "GET /v1/streams/%s/%s-", model, prefix), n;

    if (head < 0 || (size_t)head >= sizeof(t->bytes))
        return -1;
    n = snprintf(t->bytes + head, sizeof(t->bytes) - (size_t)head,
                 "%0*d-%0*d HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                 "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: Y29udGludW8tYmVuY2gtMQ==\r\n"
                 "Sec-WebSocket-Protocol: %s\r\n\r\n",
                 SEQUENCE_DIGITS, 0, RETRY_DIGITS, 0, host,
                 wire == WIRE_STREAM_JSON ? "continuo.v1.json" : "continuo.v1.plain");
    if (n < 0 || (size_t)(head + n) >= sizeof(t->bytes))
        return -1;
    t->wire = wire;
    t->sequence_at = (size_t)head;
    t->retry_at = t->sequence_at + SEQUENCE_DIGITS + 1;
    t->len = (size_t)(head + n);
    t->digit_at = t->start_at = 0;
    return 0;
}

/* Receives until `mark` has come. The socket still blocks. */
static int
receive_until(struct connection *c, const char *mark, size_t len)
{
    while (memmem(c->answer, c->received, mark, len) == NULL) {
        ssize_t n = recv(c->fd, c->answer + c->received, sizeof(c->answer) - 1 - c->received, 0);

        if (n <= 0) {
            errno = n == 0 || errno == 0 ? EPROTO : errno;
            return -1;
        }
        c->received += (size_t)n;
    }
    return 0;
}

int
stream_open(struct connection *c, const struct request_template *t)
{
    static const char opened[] = "HTTP/1.1 101";

    if (send(c->fd, c->request, t->len, MSG_NOSIGNAL) != (ssize_t)t->len ||
        receive_until(c, "\r\n\r\n", 4) < 0)
        return -1;
    if (memcmp(c->answer, opened, sizeof(opened) - 1) != 0) {
        errno = EPROTO;
        return -1;
    }
    /* The message "hello" ends with the credit and comes before anything else. */
    if (t->wire == WIRE_STREAM_JSON &&
        (receive_until(c, "\"hello\"", 7) < 0 || receive_until(c, "}", 1) < 0))
        return -1;
    c->taken = c->received;
    return 0;
}

int
stream_send(struct connection *c, const struct request_template *t, char digit)
{
    char frame[64] = {(char)TEXT};
    int n = 1;

    if (t->wire == WIRE_STREAM_JSON)
        n = snprintf(frame + 6, sizeof(frame) - 6, "{\"type\":\"step\",\"data\":%c}", digit);
    else
        frame[6] = digit;
    frame[1] = (char)(MASKED | n);
    return send(c->fd, frame, 6 + (size_t)n, MSG_NOSIGNAL) == 6 + n ? 0 : -1;
}

static int
send_pong(struct connection *c, const char *body, size_t len)
{
    char frame[6 + 125] = {(char)PONG, (char)(MASKED | len)};

    memcpy(frame + 6, body, len);
    return send(c->fd, frame, 6 + len, MSG_NOSIGNAL) == (ssize_t)(6 + len) ? 0 : -1;
}

/* Finds the sum in {"type":"answer","step":N,"final":true,...,"data":"SUM"}. */
static bool
find_sum(struct answer *out)
{
    static const char begin[] = "{\"type\":\"answer\",", end[] = "\"}";
    static const char whole[] = ",\"final\":true", status[] = ",\"status\":";
    const char *at, *last = out->body + out->body_len - 2;

    if (out->body_len < sizeof(begin) + 2 || memcmp(out->body, begin, sizeof(begin) - 1) != 0 ||
        !memmem(out->body, out->body_len, whole, sizeof(whole) - 1) ||
        memmem(out->body, out->body_len, status, sizeof(status) - 1) || memcmp(last, end, 2) != 0)
        return false;
    at = memrchr(out->body, '"', (size_t)(last - out->body));
    if (at == NULL)
        return false;
    out->body = at + 1;
    out->body_len = (size_t)(last - out->body);
    return true;
}

int
stream_answer(struct connection *c, const struct request_template *t, struct answer *out,
              const char **why)
{
    while (c->received >= c->taken + 2) {
        const unsigned char *frame = (const unsigned char *)c->answer + c->taken;
        const size_t here = c->received - c->taken, head = frame[1] == 126 ? 4 : 2;
        const size_t len = head == 4 && here >= 4 ? (size_t)frame[2] << 8 | frame[3] : frame[1];

        if (frame[1] > 126 || head + len > sizeof(c->answer) - 1) {
            *why = "a frame over 4 kB";
            return -1;
        }
        if (here < head + len)
            return 0;
        c->taken += head + len;
        out->body = (const char *)frame + head;
        out->body_len = len;
        if (frame[0] == PING && len <= 125 && send_pong(c, out->body, len) == 0)
            continue;
        out->status = 200;
        out->closes = false;
        if (c->waiting && t->wire == WIRE_STREAM_PLAIN && (frame[0] == TEXT || frame[0] == BINARY))
            return 1;
        if (c->waiting && t->wire == WIRE_STREAM_JSON && frame[0] == TEXT && find_sum(out))
            return 1;
        *why = frame[0] == CLOSE ? "the server has closed the stream" : "not the answer of a step";
        return -1;
    }
    return 0;
}
