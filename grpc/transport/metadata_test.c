/* grpc/transport/metadata_test.c - tests what is read from a request's metadata. */
#include "grpc/transport/test_client.h"

static void
timeouts_are_read(void **state)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } cases[] = {
        {"1H", 3600000},   {"2M", 120000},      {"3S", 3000},
        {"100m", 100},     {"1u", 1},           {"1000u", 1},
        {"1001u", 2},      {"1n", 1},           {"1000001n", 2},
        {"0n", 0},         {"00000001S", 1000}, {"99999999H", 359999996400000},
        {"", CN_NEVER},    {"S", CN_NEVER},     {"1", CN_NEVER},
        {"1s", CN_NEVER},  {"-1S", CN_NEVER},   {"+1S", CN_NEVER},
        {" 1S", CN_NEVER}, {"1.5S", CN_NEVER},  {"000000001S", CN_NEVER},
        {"1SS", CN_NEVER},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(cn_grpc_timeout_ms(cn_str_from(cases[i].text)), cases[i].ms);
}

static struct test_client *
begin(void)
{
    struct test_client *client;

    test_start(NULL);
    client = test_client_begin(0, 0, false);
    test_run(client);
    return client;
}

static void
end(struct test_client *client)
{
    test_client_end(client);
    test_stop();
}

static void
a_deadline_ends_the_call(void **state)
{
    struct test_client *client = begin();
    int32_t slow = test_call_with(client, "/t/Slow", "grpc-timeout", "50m", NULL, NULL), wrong;

    (void)state;
    test_run(client);
    test_wait(client, 49);
    assert_false(test_seen_of(client, slow)->ended);
    test_wait(client, 2);
    test_expect(client, slow, "4", 0);
    assert_int_equal(seen_by_server.gone, 1);
    assert_int_equal(seen_by_server.freed, 1);
    slow = test_call_with(client, "/t/Slow", "grpc-timeout", "0n", NULL, NULL);
    test_run(client);
    test_wait(client, 1);
    test_expect(client, slow, "4", 0);
    wrong = test_call_with(client, "/t/Echo", "grpc-timeout", "soon", NULL, NULL);
    test_run(client);
    test_expect(client, wrong, "3", 0);
    end(client);
}

/* The header of that name which the open call has. */
static struct cn_str
header(const char *name)
{
    const struct cn_header *headers;
    uint32_t n;

    assert_non_null(seen_by_server.last);
    headers = cn_grpc_call_headers(seen_by_server.last, &n);
    for (uint32_t i = 0; i < n; i++)
        if (cn_str_eq(headers[i].name, cn_str_from(name)))
            return headers[i].value;
    return (struct cn_str){NULL, 0};
}

static void
metadata_are_kept(void **state)
{
    struct test_client *client = begin();
    int32_t wrong;

    (void)state;
    test_call_with(client, "/t/Slow", "note", "a b", "data-bin", "AAEC/w==");
    test_run(client);
    assert_true(cn_str_eq(header("note"), CN_STR("a b")));
    assert_int_equal(header("data-bin").len, 4);
    assert_memory_equal(header("data-bin").ptr, "\0\1\2\xff", 4);
    assert_null(header("te").ptr);
    assert_null(header(":path").ptr);
    test_call_with(client, "/t/Slow", "data-bin", "AAEC/w", "empty-bin", "");
    test_run(client);
    assert_int_equal(header("data-bin").len, 4);
    assert_non_null(header("empty-bin").ptr);
    assert_int_equal(header("empty-bin").len, 0);
    wrong = test_call_with(client, "/t/Slow", "data-bin", "A*", NULL, NULL);
    test_run(client);
    test_expect(client, wrong, "3", 0);
    end(client);
}

/* Values of bytes that a proxy has joined are several headers again, each of which counts. */
static void
joined_bytes_are_parted(void **state)
{
    struct test_client *client = begin();
    const struct cn_header *headers;
    char commas[1000];
    int32_t wrong;
    uint32_t n;

    (void)state;
    test_call_with(client, "/t/Slow", "data-bin", "AAEC/w==,AAE, AA,", NULL, NULL);
    test_run(client);
    headers = cn_grpc_call_headers(seen_by_server.last, &n);
    assert_int_equal(n, 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(cn_str_eq(headers[i].name, CN_STR("data-bin")));
        assert_int_equal(headers[i].value.len, i == 0 ? 4 : i == 1 ? 2 : 1);
        assert_memory_equal(headers[i].value.ptr, "\0\1\2\xff", headers[i].value.len);
    }
    wrong = test_call_with(client, "/t/Slow", "data-bin", "AAE,A*", NULL, NULL);
    test_run(client);
    test_expect(client, wrong, "3", 0);
    memset(commas, ',', sizeof(commas) - 1);
    commas[sizeof(commas) - 1] = '\0';
    wrong = test_call_with(client, "/t/Slow", "data-bin", commas, NULL, NULL);
    test_run(client);
    test_expect(client, wrong, "8", 0);
    end(client);
}

static void
too_large_metadata_are_refused(void **state)
{
    struct test_client *client = begin();
    char value[8000];
    nghttp2_nv many[500];
    struct test_sending *sending;
    int32_t stream;
    nghttp2_data_provider data = {.read_callback = test_give};

    (void)state;
    memset(value, 'v', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    stream = test_call_with(client, "/t/Slow", "a", value, "b", value);
    test_run(client);
    assert_false(test_seen_of(client, stream)->ended); /* just below */
    stream = test_call_with(client, "/t/Slow",
                            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                            value, "b", value);
    test_run(client);
    test_expect(client, stream, "8", 0);
    for (unsigned i = 0; i < 500; i++) /* each counts 32 bytes more than it has */
        many[i] = (nghttp2_nv)TEST_NV("x", "y");
    many[499] = (nghttp2_nv)TEST_NV("content-type", "application/grpc+proto");
    many[0] = (nghttp2_nv)TEST_NV(":method", "POST");
    many[1] = (nghttp2_nv)TEST_NV(":scheme", "http");
    many[2] = (nghttp2_nv)TEST_NV(":path", "/t/Echo");
    many[3] = (nghttp2_nv)TEST_NV(":authority", "x");
    stream = (int32_t)nghttp2_session_get_next_stream_id(client->h2);
    sending = &client->sending[stream / 2];
    data.source.ptr = sending;
    assert_int_equal(nghttp2_submit_request(client->h2, NULL, many, 500, &data, NULL), stream);
    test_run(client);
    test_expect(client, stream, "8", 0);
    end(client);
}

static void
other_requests_get_a_status_of_http(void **state)
{
    static const struct {
        const char *method, *type, *status;
    } cases[] = {
        {"GET", "application/grpc", "405"},       {"POST", "text/html", "415"},
        {"POST", "application/grpcx", "415"},     {"POST", "application/grp", "415"},
        {"POST", "application/grpc+json", "200"}, {"POST", "application/grpc;x=y", "200"},
    };
    struct test_client *client = begin();

    (void)state;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const nghttp2_nv headers[] = {TEST_NV(":method", cases[i].method),
                                      TEST_NV(":scheme", "http"), TEST_NV(":path", "/t/Refuse"),
                                      TEST_NV(":authority", "x"),
                                      TEST_NV("content-type", cases[i].type)};
        int32_t stream = nghttp2_submit_request(client->h2, NULL, headers, 5, NULL, NULL);

        test_run(client);
        assert_string_equal(test_seen_of(client, stream)->http_status, cases[i].status);
        assert_true(test_seen_of(client, stream)->closed);
    }
    end(client);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timeouts_are_read),
        cmocka_unit_test(a_deadline_ends_the_call),
        cmocka_unit_test(metadata_are_kept),
        cmocka_unit_test(joined_bytes_are_parted),
        cmocka_unit_test(too_large_metadata_are_refused),
        cmocka_unit_test(other_requests_get_a_status_of_http),
    };

    return cmocka_run_group_tests_name("grpc.metadata", tests, NULL, NULL);
}
