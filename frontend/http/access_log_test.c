/* frontend/http/access_log_test.c - the line of a request, as text and as JSON. */
#include "frontend/http/access_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char line[CN_ACCESS_LINE_MAX + 1];

static struct cn_access
a_step(void)
{
    return (struct cn_access){.client = "127.0.0.1:41234",
                              .method = CN_STR("POST"),
                              .path = CN_STR("/predictions/counter"),
                              .protocol = "HTTP/1.1",
                              .status = 200,
                              .us = 1999,
                              .bytes_in = 3,
                              .bytes_out = 4,
                              .model = "counter",
                              .version = "1.0",
                              .sequence = CN_STR("seq 0\""),
                              .step = 7,
                              .request_id = "abc"};
}

static const char *
format(const struct cn_access *access, bool json)
{
    line[cn_access_log_format(access, json, UINT64_C(1700000000000), line)] = '\0';
    return line;
}

/* Tools that read TorchServe's access log can read ours up to the milliseconds. */
static void
text_begins_as_torchserves_line(void **state)
{
    struct cn_access access = a_step();

    (void)state;
    assert_string_equal(format(&access, false),
                        "2023-11-14T22:13:20.000Z - /127.0.0.1:41234 \"POST /predictions/counter "
                        "HTTP/1.1\" 200 1 model=\"counter\" version=\"1.0\" sequence=\"seq 0\\\"\" "
                        "step=7 us=1999 in=3 out=4 id=abc\n");
}

static void
json_has_the_same_members(void **state)
{
    struct cn_access access = a_step();

    (void)state;
    assert_string_equal(
        format(&access, true),
        "{\"time\":\"2023-11-14T22:13:20.000Z\",\"client\":\"127.0.0.1:41234\",\"method\":\"POST\","
        "\"path\":\"/predictions/counter\",\"protocol\":\"HTTP/1.1\",\"status\":200,"
        "\"model\":\"counter\",\"version\":\"1.0\",\"sequence\":\"seq 0\\\"\",\"step\":7,"
        "\"us\":1999,\"in\":3,\"out\":4,\"id\":\"abc\"}\n");
}

/* Nothing that a client sends can end the line or fake a second one, however long it is. */
static void
a_hostile_path_stays_inside_one_line(void **state)
{
    static char path[100000];
    struct cn_access access = a_step();
    const char *text;

    (void)state;
    memset(path, '"', sizeof(path));
    memcpy(path, "/x\n2023 - \r\x1b[2J\xff", 15);
    access.path = (struct cn_str){path, sizeof(path)};
    access.sequence = access.path;
    for (int json = 0; json < 2; json++) {
        text = format(&access, json);
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
        assert_null(strchr(text, '\x1b'));
        assert_true(strlen(text) < CN_ACCESS_LINE_MAX);
        assert_non_null(strstr(text, json ? "\"id\":\"abc\"}" : " id=abc"));
    }
}

static void
what_is_not_known_is_left_out(void **state)
{
    const struct cn_access access = {
        .method = CN_STR("GET"), .path = CN_STR("/ping"), .protocol = "HTTP/1.0", .status = 499};

    (void)state;
    assert_string_equal(
        format(&access, false),
        "2023-11-14T22:13:20.000Z - - \"GET /ping HTTP/1.0\" 499 0 us=0 in=0 out=0\n");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_begins_as_torchserves_line),
        cmocka_unit_test(json_has_the_same_members),
        cmocka_unit_test(a_hostile_path_stays_inside_one_line),
        cmocka_unit_test(what_is_not_known_is_left_out),
    };

    return cmocka_run_group_tests_name("frontend.access_log", tests, NULL, NULL);
}
