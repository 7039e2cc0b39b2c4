/* frontend/http/transport/http_tls_test.c - tests connections over TLS: handshakes that come in any
 * pieces or break off, plain HTTP, large bodies, new keys, and orderly ends. */
#include <limits.h>

#include "access/certificate/test_identity.h"
#include "access/certificate/tls.h"
#include "frontend/http/transport/test_http.h"

#define POST "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
#define GET_LARGE "GET /large HTTP/1.1\r\nHost: a\r\n\r\n"

static gnutls_certificate_credentials_t trusting;
static char certificate_path[PATH_MAX], key_path[PATH_MAX], folder[TEST_DIR_MAX];
static const char *const versions[] = {"NORMAL:-VERS-ALL:+VERS-TLS1.3",
                                       "NORMAL:-VERS-ALL:+VERS-TLS1.2"};

/* Makes a certificate that has signed itself, and its key, as files. */
static int
make_identity(void **state)
{
    char certificate_pem[TEST_PEM_BYTES], key_pem[TEST_PEM_BYTES];

    (void)state;
    test_identity_make(certificate_pem, key_pem);
    gnutls_certificate_allocate_credentials(&trusting);
    test_dir_make(folder);
    test_dir_write(folder, "certificate.pem", certificate_pem);
    test_dir_write(folder, "key.pem", key_pem);
    snprintf(certificate_path, sizeof(certificate_path), "%s/certificate.pem", folder);
    snprintf(key_path, sizeof(key_path), "%s/key.pem", folder);
    return 0;
}

static int
free_identity(void **state)
{
    (void)state;
    gnutls_certificate_free_credentials(trusting);
    return test_dir_remove(folder);
}

static int
start(void **state)
{
    struct cn_error err;

    (void)state;
    test_config.certificate_file = certificate_path;
    test_config.private_key_file = key_path;
    assert_int_equal(cn_tls_start(&test_config, &err), 0);
    test_start(true);
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    test_stop();
    cn_tls_stop();
    return 0;
}

/* --- a client */

static gnutls_session_t
session(int fd, const char *priorities)
{
    gnutls_session_t tls;

    gnutls_init(&tls, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);
    gnutls_priority_set_direct(tls, priorities, NULL);
    gnutls_credentials_set(tls, GNUTLS_CRD_CERTIFICATE, trusting);
    gnutls_transport_set_int(tls, fd);
    return tls;
}

static ssize_t
pull(gnutls_transport_ptr_t from, void *room, size_t len)
{
    return recv((int)(intptr_t)from, room, len, MSG_DONTWAIT);
}

/* Makes the handshake. Returns 0, or GnuTLS's error. */
static int
shake(gnutls_session_t tls)
{
    int rc = GNUTLS_E_AGAIN;

    gnutls_transport_set_pull_function(tls, pull);
    for (unsigned i = 0; i < 200 && rc == GNUTLS_E_AGAIN; i++) {
        rc = gnutls_handshake(tls);
        cn_loop_turn(loop, 0);
    }
    return rc;
}

static gnutls_session_t
connect_with(int room, const char *priorities, int *fd)
{
    gnutls_session_t tls;

    *fd = test_connect(room);
    tls = session(*fd, priorities);
    assert_int_equal(shake(tls), 0);
    return tls;
}

static void
leave(gnutls_session_t tls, int fd)
{
    gnutls_deinit(tls);
    close(fd);
    test_turns();
    assert_true(cn_http_listener_is_empty(listener));
}

/* Reads until nothing comes any more, in parts of at most `most` bytes. Returns the last result of
 * GnuTLS. */
static ssize_t
read_tls(gnutls_session_t tls, struct test_answers *out, size_t most)
{
    ssize_t n = GNUTLS_E_AGAIN;

    if (!out->bytes)
        out->bytes = cn_alloc(8 << 20);
    for (unsigned quiet = 0; quiet < 100; quiet++) {
        n = gnutls_record_recv(tls, out->bytes + out->len, most);
        cn_loop_turn(loop, 0);
        if (n == 0 || (n < 0 && n != GNUTLS_E_AGAIN))
            break;
        out->len += n > 0 ? (size_t)n : 0;
        out->bytes[out->len] = '\0';
        quiet = n > 0 ? 0 : quiet;
    }
    return n;
}

static void
expect_echo(gnutls_session_t tls)
{
    struct test_answers answers = {.len = 0};

    assert_int_equal(gnutls_record_send(tls, POST, sizeof(POST) - 1), sizeof(POST) - 1);
    assert_int_equal(read_tls(tls, &answers, 65536), GNUTLS_E_AGAIN);
    assert_int_equal(test_count(&answers, "\r\n\r\nabc"), 1);
    test_forget(&answers);
}

/* --- the tests */

/* Plain HTTP is told what is wrong, also if it comes later than the connection. */
static void
plain_http_is_told(void **state)
{
    struct test_answers answers = {.len = 0};
    int fd = test_connect(0);

    (void)state;
    test_turns();
    test_send_text(fd, POST);
    test_read(fd, &answers);
    assert_int_equal(test_count(&answers, "HTTP/1.1 400 "), 1);
    assert_int_equal(test_count(&answers, "this port requires TLS"), 1);
    assert_true(answers.ended);
    test_forget(&answers);
    close(fd);
}

/* A client that sends something else gets an alert, although bytes of it are not read. */
static void
a_failed_handshake_is_told(void **state)
{
    static const char hello[2000] = {0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5};
    struct test_answers answers = {.len = 0};
    int fd = test_connect(0);

    (void)state;
    test_send(fd, hello, sizeof(hello));
    test_read(fd, &answers);
    assert_true(answers.len >= 7 && answers.bytes[0] == 0x15);
    assert_true(answers.ended);
    test_forget(&answers);
    close(fd);
}

/* The client sends its part of the handshake byte by byte. */
static ssize_t
push_a_byte(gnutls_transport_ptr_t to, const void *bytes, size_t len)
{
    (void)len;
    cn_loop_turn(loop, 0);
    return send((int)(intptr_t)to, bytes, 1, MSG_NOSIGNAL);
}

static void
a_slow_handshake_succeeds(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        int fd = test_connect(0);
        gnutls_session_t tls = session(fd, versions[i]);

        gnutls_transport_set_push_function(tls, push_a_byte);
        assert_int_equal(shake(tls), 0);
        expect_echo(tls);
        leave(tls, fd);
    }
}

static size_t n_pushed, push_most;

static ssize_t
push_some(gnutls_transport_ptr_t to, const void *bytes, size_t len)
{
    if (n_pushed == push_most) {
        errno = ECONNRESET;
        return -1;
    }
    len = len < push_most - n_pushed ? len : push_most - n_pushed;
    n_pushed += len;
    return send((int)(intptr_t)to, bytes, len, MSG_NOSIGNAL);
}

/* Clients that close or reset in the middle of the handshake leave nothing behind. */
static void
a_handshake_may_break_off_anywhere(void **state)
{
    (void)state;
    for (push_most = 0; push_most < 700; push_most += 13) {
        int fd = test_connect(0);
        gnutls_session_t tls = session(fd, versions[push_most % 2]);

        n_pushed = 0;
        gnutls_transport_set_push_function(tls, push_some);
        shake(tls);
        gnutls_deinit(tls);
        if (push_most % 3)
            test_reset(fd);
        else
            close(fd);
        test_turns();
        assert_true(cn_http_listener_is_empty(listener));
    }
}

static ssize_t
push_behind_a_warning(gnutls_transport_ptr_t to, const void *bytes, size_t len)
{
    static const char warning[] = {0x15, 3, 3, 0, 2, 1, 90};
    char both[4096];

    if (n_pushed++ != 1)
        return send((int)(intptr_t)to, bytes, len, MSG_NOSIGNAL);
    memcpy(both, warning, sizeof(warning));
    memcpy(both + sizeof(warning), bytes, len);
    return send((int)(intptr_t)to, both, sizeof(warning) + len, MSG_NOSIGNAL) -
           (ssize_t)sizeof(warning);
}

/* A warning that comes together with the second message does not hold the handshake up. */
static void
a_warning_does_not_hold_up_the_handshake(void **state)
{
    int fd = test_connect(0);
    gnutls_session_t tls = session(fd, versions[1]);

    (void)state;
    n_pushed = 0;
    gnutls_transport_set_push_function(tls, push_behind_a_warning);
    assert_int_equal(shake(tls), 0);
    expect_echo(tls);
    leave(tls, fd);
}

/* Large bodies go in both directions, to a client that reads in small and large parts. */
static void
large_bodies_arrive(void **state)
{
    static char request[3000100];
    const size_t n = 3000000;

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct test_answers answers = {.len = 0};
        int fd, head = snprintf(request, 100,
                                "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", n);
        gnutls_session_t tls = connect_with(i < 2 ? 0 : 4096, versions[i % 2], &fd);
        const size_t len = (size_t)head + n;
        char *body;

        for (size_t k = 0; k < n; k++)
            request[(size_t)head + k] = test_byte(k);
        for (size_t at = 0; at < len;) {
            ssize_t sent = gnutls_record_send(tls, request + at, len - at);

            assert_true(sent > 0 || sent == GNUTLS_E_AGAIN);
            at += sent > 0 ? (size_t)sent : 0;
            cn_loop_turn(loop, 0);
        }
        assert_int_equal(read_tls(tls, &answers, i < 2 ? 65536 : 3001), GNUTLS_E_AGAIN);
        body = strstr(answers.bytes, "\r\n\r\n") + 4;
        assert_int_equal(answers.bytes + answers.len - body, n);
        assert_memory_equal(body, request + head, n);
        test_forget(&answers);
        expect_echo(tls);
        leave(tls, fd);
    }
}

/* A client asks for new keys, and sends a request in the same packet. */
static void
new_keys_do_not_hold_up_a_request(void **state)
{
    int fd;
    gnutls_session_t tls = connect_with(0, versions[0], &fd);

    (void)state;
    expect_echo(tls);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(gnutls_session_key_update(tls, i % 2 ? GNUTLS_KU_PEER : 0), 0);
        expect_echo(tls);
    }
    leave(tls, fd);
}

/* An answer after which the server closes ends with close_notify, so that a client can tell that
 * nothing was cut off; a stream that broke off does not. */
static void
an_orderly_end_is_told(void **state)
{
    static const char close_text[] = "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                      stream_text[] = "GET /hold HTTP/1.0\r\n\r\n";
    struct test_answers answers = {.len = 0};
    gnutls_session_t tls;
    int fd;

    (void)state;
    tls = connect_with(0, versions[0], &fd);
    gnutls_record_send(tls, close_text, sizeof(close_text) - 1);
    assert_int_equal(read_tls(tls, &answers, 65536), 0);
    leave(tls, fd);
    for (unsigned is_whole = 0; is_whole < 2; is_whole++) {
        tls = connect_with(0, versions[0], &fd);
        gnutls_record_send(tls, stream_text, sizeof(stream_text) - 1);
        test_turns();
        test_piece(30000, false);
        test_turns();
        if (is_whole)
            test_piece(0, true);
        else
            cn_http_listener_cut(listener);
        assert_int_equal(read_tls(tls, &answers, 65536),
                         is_whole ? 0 : GNUTLS_E_PREMATURE_TERMINATION);
        if (!is_whole)
            test_piece(0, true);
        leave(tls, fd);
    }
    test_forget(&answers);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(plain_http_is_told),
        TEST(a_failed_handshake_is_told),
        TEST(a_slow_handshake_succeeds),
        TEST(a_handshake_may_break_off_anywhere),
        TEST(a_warning_does_not_hold_up_the_handshake),
        TEST(large_bodies_arrive),
        TEST(new_keys_do_not_hold_up_a_request),
        TEST(an_orderly_end_is_told),
    };

    return cmocka_run_group_tests(tests, make_identity, free_identity);
}
