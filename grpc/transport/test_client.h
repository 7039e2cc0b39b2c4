/* grpc/transport/test_client.h - help for the tests of this room: a client of HTTP/2 at the other
 * end of a socket pair. test_run() lets both sides go on until nothing moves any more. */
#ifndef CN_GRPC_TRANSPORT_TEST_CLIENT_H
#define CN_GRPC_TRANSPORT_TEST_CLIENT_H

#include <errno.h>

#include "grpc/transport/test_server.h"

#define TEST_CALLS 64

/* What a client has seen of one call. */
struct test_seen {
    char http_status[8], status[8], message[512], encoding[16], note[64];
    struct cn_buf data;
    size_t head_bytes; /* of the first frame with headers */
    bool head, ended, closed, data_before_head;
    uint32_t close_code;
};

/* What a client sends in one call. */
struct test_sending {
    struct cn_buf data;
    size_t at;
    bool ends, waits;
};

struct test_client {
    int fd;
    gnutls_session_t tls; /* NULL: without TLS */
    nghttp2_session *h2;
    struct test_seen seen[TEST_CALLS]; /* by stream / 2 */
    struct test_sending sending[TEST_CALLS];
    unsigned pongs, goaways;
    bool reads, lost; /* it reads; the server has closed */
};

static inline struct test_seen *
test_seen_of(struct test_client *client, int32_t stream)
{
    assert_true(stream > 0 && stream / 2 < TEST_CALLS);
    return &client->seen[stream / 2];
}

static inline void
test_keep(char *out, size_t room, const uint8_t *value, size_t len)
{
    assert_true(len < room);
    memcpy(out, value, len);
    out[len] = '\0';
}

static int
test_on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
               size_t name_len, const uint8_t *value, size_t len, uint8_t flags, void *ctx)
{
    struct test_seen *seen = test_seen_of(ctx, frame->hd.stream_id);
    struct cn_str key = {(const char *)name, name_len};

    (void)h2, (void)flags;
    if (cn_str_eq(key, CN_STR(":status")))
        test_keep(seen->http_status, sizeof(seen->http_status), value, len);
    else if (cn_str_eq(key, CN_STR("grpc-status")))
        test_keep(seen->status, sizeof(seen->status), value, len);
    else if (cn_str_eq(key, CN_STR("grpc-message")))
        test_keep(seen->message, sizeof(seen->message), value, len);
    else if (cn_str_eq(key, CN_STR("grpc-encoding")))
        test_keep(seen->encoding, sizeof(seen->encoding), value, len);
    else if (cn_str_eq(key, CN_STR("note")))
        test_keep(seen->note, sizeof(seen->note), value, len);
    return 0;
}

static int
test_on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *ctx)
{
    struct test_client *client = ctx;

    (void)h2;
    client->pongs += frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK);
    client->goaways += frame->hd.type == NGHTTP2_GOAWAY;
    if (frame->hd.type == NGHTTP2_HEADERS && !test_seen_of(client, frame->hd.stream_id)->head) {
        test_seen_of(client, frame->hd.stream_id)->head = true;
        test_seen_of(client, frame->hd.stream_id)->head_bytes = frame->hd.length;
    }
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        test_seen_of(client, frame->hd.stream_id)->ended = true;
    return 0;
}

static int
test_on_data(nghttp2_session *h2, uint8_t flags, int32_t stream, const uint8_t *bytes, size_t len,
             void *ctx)
{
    (void)h2, (void)flags;
    cn_buf_append(&test_seen_of(ctx, stream)->data, bytes, len);
    return 0;
}

static int
test_on_close(nghttp2_session *h2, int32_t stream, uint32_t code, void *ctx)
{
    struct test_seen *seen = test_seen_of(ctx, stream);

    (void)h2;
    seen->closed = true;
    seen->close_code = code;
    return 0;
}

static ssize_t
test_give(nghttp2_session *h2, int32_t stream, uint8_t *room, size_t len, uint32_t *flags,
          nghttp2_data_source *source, void *ctx)
{
    struct test_sending *sending = source->ptr;
    size_t left = sending->data.len - sending->at;

    (void)h2, (void)stream, (void)ctx;
    if (left == 0 && !sending->ends) {
        sending->waits = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    len = left < len ? left : len;
    if (len)
        memcpy(room, sending->data.data + sending->at, len);
    sending->at += len;
    if (sending->at == sending->data.len && sending->ends)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)len;
}

static ssize_t test_frame_bytes = 16384; /* of the client's frames with data */

static ssize_t
test_on_length(nghttp2_session *h2, uint8_t type, int32_t stream, int32_t connection_window,
               int32_t window, uint32_t max, void *ctx)
{
    (void)h2, (void)type, (void)stream, (void)connection_window, (void)window, (void)ctx;
    return test_frame_bytes < (ssize_t)max ? test_frame_bytes : (ssize_t)max;
}

/* Like send() and recv(), through TLS if the client has it. */
static inline ssize_t
test_write(struct test_client *client, const void *bytes, size_t len)
{
    ssize_t n;

    if (!client->tls)
        return send(client->fd, bytes, len, MSG_NOSIGNAL);
    n = gnutls_record_send(client->tls, bytes, len);
    errno = n == GNUTLS_E_AGAIN ? EAGAIN : ECONNRESET;
    return n < 0 ? -1 : n;
}

static inline ssize_t
test_read(struct test_client *client, void *bytes, size_t len)
{
    ssize_t n;

    if (!client->tls)
        return recv(client->fd, bytes, len, 0);
    n = gnutls_record_recv(client->tls, bytes, len);
    errno = n == GNUTLS_E_AGAIN ? EAGAIN : ECONNRESET;
    return n < 0 ? -1 : n;
}

/* Begins a client over TLS, whose handshake the test makes, or none. `window` is what it takes of
 * each call before it reads; 0: the usual. `manual`: windows open only when the test says so. */
static inline struct test_client *
test_client_begin_with(int fd, gnutls_session_t tls, uint32_t window, bool manual)
{
    struct test_client *client = cn_alloc(sizeof(*client));
    const nghttp2_settings_entry settings = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window};
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;

    client->fd = fd;
    client->tls = tls;
    client->reads = true;
    assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, test_on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, test_on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, test_on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, test_on_close);
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, test_on_length);
    nghttp2_option_new(&option);
    nghttp2_option_set_no_auto_window_update(option, manual);
    assert_int_equal(nghttp2_session_client_new2(&client->h2, callbacks, client, option), 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(client->h2, 0, &settings, window || manual ? 1 : 0);
    return client;
}

static inline struct test_client *
test_client_begin(int room, uint32_t window, bool manual)
{
    return test_client_begin_with(test_connect(room, false), NULL, window, manual);
}

static inline void
test_client_end(struct test_client *client)
{
    nghttp2_session_del(client->h2);
    for (unsigned i = 0; i < TEST_CALLS; i++) {
        cn_buf_fini(&client->seen[i].data);
        cn_buf_fini(&client->sending[i].data);
    }
    if (client->tls)
        gnutls_deinit(client->tls);
    if (client->fd >= 0)
        close(client->fd);
    cn_free(client);
}

/* Moves bytes in both directions once. Returns how many moved. */
static inline size_t
test_client_move(struct test_client *client)
{
    static uint8_t bytes[65536];
    const uint8_t *out;
    size_t moved = 0;
    ssize_t n;

    while (!client->lost && (n = nghttp2_session_mem_send(client->h2, &out)) > 0) {
        for (size_t at = 0; at < (size_t)n;) {
            ssize_t k = test_write(client, out + at, (size_t)n - at);

            if (k < 0 && errno == EAGAIN)
                cn_loop_turn(loop, 0);
            else if (k < 0)
                break;
            else
                at += (size_t)k;
        }
        moved += (size_t)n;
    }
    while (client->reads && !client->lost && (n = test_read(client, bytes, sizeof(bytes))) >= 0) {
        client->lost = n == 0;
        assert_true(n == 0 || nghttp2_session_mem_recv(client->h2, bytes, (size_t)n) == n);
        moved += (size_t)n;
    }
    if (client->reads && errno != EAGAIN)
        client->lost = true;
    return moved;
}

/* Goes on until nothing moves any more. */
static inline void
test_run(struct test_client *client)
{
    /* A record of TLS may need several turns of a small socket. */
    for (unsigned quiet = 0; quiet < (client->tls ? 12 : 3); quiet++) {
        errno = EAGAIN;
        if (test_client_move(client) > 0)
            quiet = 0;
        cn_loop_turn(loop, 0);
    }
}

/* Lets this much time pass. */
static inline void
test_wait(struct test_client *client, uint64_t ms)
{
    cn_clock_advance(ms);
    cn_loop_turn(loop, 0);
    if (client)
        test_run(client);
}

#define TEST_NV(name, value)                                                                       \
    {                                                                                              \
        (uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), strlen(name), strlen(value),  \
            NGHTTP2_NV_FLAG_NONE                                                                   \
    }

/* Begins a call; up to two more metadata. Returns its stream. */
static inline int32_t
test_call_with(struct test_client *client, const char *path, const char *name, const char *value,
               const char *name2, const char *value2)
{
    const nghttp2_nv headers[] = {
        TEST_NV(":method", "POST"),
        TEST_NV(":scheme", "http"),
        TEST_NV(":path", path),
        TEST_NV(":authority", "test"),
        TEST_NV("te", "trailers"),
        TEST_NV("content-type", "application/grpc"),
        TEST_NV(name ? name : "", name ? value : ""),
        TEST_NV(name2 ? name2 : "", name2 ? value2 : ""),
    };
    int32_t next = (int32_t)nghttp2_session_get_next_stream_id(client->h2);
    struct test_sending *sending;
    nghttp2_data_provider data = {.read_callback = test_give};

    assert_true(next / 2 < TEST_CALLS);
    sending = &client->sending[next / 2];
    data.source.ptr = sending;
    assert_int_equal(nghttp2_submit_request(client->h2, NULL, headers,
                                            6u + (name ? 1 : 0) + (name2 ? 1 : 0), &data, NULL),
                     next);
    return next;
}

static inline int32_t
test_call(struct test_client *client, const char *path)
{
    return test_call_with(client, path, NULL, NULL, NULL, NULL);
}

static inline void
test_send_bytes(struct test_client *client, int32_t stream, const void *bytes, size_t len,
                bool ends)
{
    struct test_sending *sending = &client->sending[stream / 2];

    if (len)
        cn_buf_append(&sending->data, bytes, len);
    sending->ends |= ends;
    if (sending->waits)
        nghttp2_session_resume_data(client->h2, stream);
    sending->waits = false;
}

/* Sends a message; `ends`: it is the last one. */
static inline void
test_send(struct test_client *client, int32_t stream, const void *bytes, size_t len, bool ends)
{
    const uint8_t prefix[5] = {0, (uint8_t)(len >> 24), (uint8_t)(len >> 16), (uint8_t)(len >> 8),
                               (uint8_t)len};

    test_send_bytes(client, stream, prefix, 5, false);
    test_send_bytes(client, stream, bytes, len, ends);
}

static inline void
test_expect(struct test_client *client, int32_t stream, const char *status, size_t data_bytes)
{
    const struct test_seen *seen = test_seen_of(client, stream);

    assert_string_equal(seen->http_status, "200");
    assert_string_equal(seen->status, status);
    assert_true(seen->ended);
    assert_int_equal(seen->data.len, data_bytes);
}

#endif
