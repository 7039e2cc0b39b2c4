/* grpc/transport/h2_tls_test.c - tests connections over TLS: slow and broken handshakes, clients
 * that stop reading or close, and new keys in the middle of an answer. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "access/certificate/test_identity.h"
#include "access/certificate/tls.h"
#include "grpc/transport/test_client.h"

static gnutls_certificate_credentials_t trusting; /* the clients' */
static char certificate_pem[TEST_PEM_BYTES], key_pem[TEST_PEM_BYTES],
    folder[] = "/tmp/continuo-tls-XXXXXX";

/* Makes a certificate that has signed itself. */
static int
make_identity(void **state)
{
    (void)state;
    test_identity_make(certificate_pem, key_pem);
    gnutls_certificate_allocate_credentials(&trusting);
    return mkdtemp(folder) ? 0 : -1;
}

static int
free_identity(void **state)
{
    char path[PATH_MAX];

    (void)state;
    gnutls_certificate_free_credentials(trusting);
    snprintf(path, sizeof(path), "%s/certificate.pem", folder);
    unlink(path);
    snprintf(path, sizeof(path), "%s/key.pem", folder);
    unlink(path);
    return rmdir(folder);
}

static void
write_file(const char *name, const char *text, char path[PATH_MAX])
{
    FILE *file;

    snprintf(path, PATH_MAX, "%s/%s", folder, name);
    file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void
start(bool needs_client)
{
    char certificate[PATH_MAX], key[PATH_MAX];
    struct cn_server_config config = {.certificate_file = certificate,
                                      .private_key_file = key,
                                      .grpc_client_ca = needs_client ? certificate : NULL};
    struct cn_grpc_limits limits = test_limits;
    struct cn_error err;

    write_file("certificate.pem", certificate_pem, certificate);
    write_file("key.pem", key_pem, key);
    assert_int_equal(cn_tls_start(&config, &err), 0);
    limits.needs_certificate = needs_client;
    test_start(&limits);
}

static void
stop(void)
{
    test_stop();
    cn_tls_stop();
}

static gnutls_session_t
client_session(int fd, const char *priorities)
{
    static const gnutls_datum_t h2 = {(unsigned char *)(uintptr_t) "h2", 2};
    gnutls_session_t tls;

    gnutls_init(&tls, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);
    gnutls_priority_set_direct(tls, priorities, NULL);
    gnutls_credentials_set(tls, GNUTLS_CRD_CERTIFICATE, trusting);
    gnutls_alpn_set_protocols(tls, &h2, 1, 0);
    gnutls_transport_set_int(tls, fd);
    return tls;
}

/* Makes the handshake. Returns 0, or GnuTLS's error. */
static int
shake(gnutls_session_t tls)
{
    int rc = GNUTLS_E_AGAIN;

    for (unsigned i = 0; i < 100 && rc == GNUTLS_E_AGAIN; i++) {
        rc = gnutls_handshake(tls);
        cn_loop_turn(loop, 0);
    }
    return rc;
}

static struct test_client *
begin(int room, uint32_t window, const char *priorities)
{
    int fd = test_connect(room, true);
    gnutls_session_t tls = client_session(fd, priorities);

    assert_int_equal(shake(tls), 0);
    return test_client_begin_with(fd, tls, window, false);
}

static void
calls_are_answered(void **state)
{
    static const char *const priorities[] = {"NORMAL:-VERS-ALL:+VERS-TLS1.3",
                                             "NORMAL:-VERS-ALL:+VERS-TLS1.2"};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct test_client *client;
        int32_t stream;

        start(false);
        client = begin(0, 1 << 20, priorities[i]);
        large_bytes = 500000;
        for (unsigned k = 0; k < 4; k++) {
            stream = test_call(client, "/t/Large");
            test_send(client, stream, "x", 1, true);
            test_run(client);
            test_expect(client, stream, "0", large_bytes + 5);
        }
        test_client_end(client);
        stop();
    }
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
    struct test_client *client;
    gnutls_session_t tls;
    int32_t stream;
    int fd;

    (void)state;
    start(false);
    fd = test_connect(0, true);
    tls = client_session(fd, "NORMAL");
    gnutls_transport_set_push_function(tls, push_a_byte);
    assert_int_equal(shake(tls), 0);
    client = test_client_begin_with(fd, tls, 0, false);
    stream = test_call(client, "/t/Echo");
    test_send(client, stream, "slow", 4, true);
    test_run(client);
    test_expect(client, stream, "0", 9);
    test_client_end(client);
    stop();
}

static void
a_handshake_that_does_not_end_is_dropped(void **state)
{
    static const char *const begins[] = {
        "",     "\x16\x03\x01\x02",       "\x16\x03\x01\x02\x00\x01\x00",
        "\x16", "GET / HTTP/1.1\r\n\r\n", "\x15\x03\x01\x00\x02\x02"};

    (void)state;
    for (unsigned i = 0; i < 6; i++)
        for (unsigned closes = 0; closes < 3; closes++) {
            int fd;

            start(i % 2);
            fd = test_connect(0, true);
            assert_true(send(fd, begins[i], strlen(begins[i]), 0) >= 0);
            cn_loop_turn(loop, 0);
            if (closes == 1)
                shutdown(fd, SHUT_WR);
            if (closes == 2)
                cn_grpc_server_drain(server);
            else if (!closes)
                cn_clock_advance(10001);
            cn_loop_turn(loop, 0);
            cn_loop_turn(loop, 0);
            assert_null(test_conn());
            close(fd);
            stop();
        }
}

static void
clients_without_a_certificate_are_refused(void **state)
{
    gnutls_session_t tls;
    char byte;
    int fd;

    (void)state;
    start(true);
    fd = test_connect(0, true);
    tls = client_session(fd, "NORMAL:-VERS-ALL:+VERS-TLS1.2");
    assert_int_not_equal(shake(tls), 0);
    assert_null(test_conn());
    gnutls_deinit(tls);
    close(fd);
    fd = test_connect(0, true);
    tls = client_session(fd, "NORMAL:-VERS-ALL:+VERS-TLS1.3"); /* learns it afterwards */
    shake(tls);
    assert_true(gnutls_record_recv(tls, &byte, 1) < 0);
    assert_null(test_conn());
    gnutls_deinit(tls);
    close(fd);
    stop();
}

/* Clients that leave in the middle of an answer that the socket does not take. */
static void
clients_leave_amid_an_answer(void **state)
{
    (void)state;
    for (unsigned how = 0; how < 4; how++) {
        struct test_client *client;
        int32_t stream;

        start(false);
        client = begin(4096, 1 << 30, "NORMAL");
        nghttp2_session_set_local_window_size(client->h2, 0, 0, 1 << 30);
        test_run(client);
        client->reads = false;
        large_bytes = 2 << 20;
        stream = test_call(client, "/t/Large");
        test_send(client, stream, "x", 1, true);
        test_run(client);
        assert_true(test_conn()->out.len > 0);
        if (how == 0) {
            gnutls_bye(client->tls, GNUTLS_SHUT_WR);
        } else if (how == 1) {
            shutdown(client->fd, SHUT_WR);
        } else if (how == 2) {
            close(client->fd);
            client->fd = -1;
        } else {
            nghttp2_submit_rst_stream(client->h2, 0, stream, NGHTTP2_CANCEL);
            test_run(client);
            assert_int_equal(seen_by_server.gone, 1);
            client->reads = true;
            test_run(client);
            stream = test_call(client, "/t/Echo"); /* the connection can still be used */
            test_send(client, stream, "x", 1, true);
            test_run(client);
            test_expect(client, stream, "0", 6);
        }
        cn_loop_turn(loop, 0);
        cn_loop_turn(loop, 0);
        assert_int_equal(test_conn() == NULL, how < 3);
        assert_int_equal(seen_by_server.gone, 1);
        test_client_end(client);
        stop();
    }
}

/* The client asks for new keys while the server waits to send the rest of a record. */
static void
keys_change_amid_an_answer(void **state)
{
    (void)state;
    for (unsigned times = 1; times < 4; times++) {
        struct test_client *client;
        int32_t stream;

        start(false);
        client = begin(4096, 1 << 30, "NORMAL:-VERS-ALL:+VERS-TLS1.3");
        nghttp2_session_set_local_window_size(client->h2, 0, 0, 1 << 30);
        test_run(client);
        client->reads = false;
        large_bytes = 3 << 20;
        stream = test_call(client, "/t/Large");
        test_send(client, stream, "x", 1, true);
        test_run(client);
        for (unsigned i = 0; i < times; i++) {
            assert_int_equal(gnutls_session_key_update(client->tls, GNUTLS_KU_PEER), 0);
            cn_loop_turn(loop, 0);
            cn_loop_turn(loop, 0);
        }
        client->reads = true;
        test_run(client);
        test_expect(client, stream, "0", large_bytes + 5);
        stream = test_call(client, "/t/Echo");
        test_send(client, stream, "x", 1, true);
        test_run(client);
        test_expect(client, stream, "0", 6);
        test_client_end(client);
        stop();
    }
}

/* A connection ends with TLS's own goodbye, also if the socket takes everything but that, and the
 * client reads only then. The number of answers to pings decides how full the socket is. */
static void
a_full_socket_gets_the_goodbye_later(void **state)
{
    bool was_full = false;

    (void)state;
    for (unsigned pings = 0; pings < 20; pings++) {
        struct test_client *client;
        char bytes[4096];
        ssize_t n;

        start(false);
        client = begin(4096, 0, "NORMAL");
        test_run(client);
        client->reads = false;
        for (unsigned i = 0; i < pings; i++) {
            nghttp2_submit_ping(client->h2, 0, NULL);
            test_run(client);
        }
        cn_grpc_server_drain(server);
        cn_loop_turn(loop, 0);
        cn_loop_turn(loop, 0);
        was_full |= test_conn()->hung_up && test_conn()->out.len > 0;
        do {
            n = gnutls_record_recv(client->tls, bytes, sizeof(bytes));
            cn_loop_turn(loop, 0);
        } while (n > 0 || n == GNUTLS_E_AGAIN);
        assert_int_equal(n, 0);
        test_client_end(client);
        cn_loop_turn(loop, 0);
        stop();
    }
    assert_true(was_full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_answered),
        cmocka_unit_test(a_slow_handshake_succeeds),
        cmocka_unit_test(a_handshake_that_does_not_end_is_dropped),
        cmocka_unit_test(clients_without_a_certificate_are_refused),
        cmocka_unit_test(clients_leave_amid_an_answer),
        cmocka_unit_test(keys_change_amid_an_answer),
        cmocka_unit_test(a_full_socket_gets_the_goodbye_later),
    };

    return cmocka_run_group_tests_name("grpc.h2_tls", tests, make_identity, free_identity);
}
