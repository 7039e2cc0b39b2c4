/* frontend/http/form_test.c - tests that forms are split as their sender meant, or are refused. */
#include "frontend/http/form.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/memory/buf.h"

#define TYPE "multipart/form-data; boundary=b"

struct fixture {
    struct cn_arena arena;
    struct cn_parts parts;
    struct cn_error err;
};

static int
set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    cn_arena_init(&f->arena);
    f->parts.max = 8;
    *state = f;
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *f = *state;

    cn_arena_fini(&f->arena);
    free(f);
    return 0;
}

static int
multipart(struct fixture *f, const char *type, const char *body)
{
    f->parts.n = 0;
    return cn_form_multipart(&f->arena, cn_str_from(type), cn_str_from(body), &f->parts, &f->err);
}

static int
urlencoded(struct fixture *f, const char *body)
{
    f->parts.n = 0;
    return cn_form_urlencoded(&f->arena, cn_str_from(body), &f->parts, &f->err);
}

static void
assert_part(const struct fixture *f, uint32_t at, const char *name, const char *type,
            const char *data)
{
    assert_true(at < f->parts.n);
    assert_true(cn_str_eq(f->parts.list[at].name, cn_str_from(name)));
    assert_true(cn_str_eq(f->parts.list[at].content_type, cn_str_from(type)));
    assert_true(cn_str_eq(f->parts.list[at].data, cn_str_from(data)));
}

/* curl -F 'data=@kitten.txt' -F 'note=hi;type=text/html' writes this. Only files have a type. */
static void
files_and_fields_are_told_apart(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(
        multipart(f, TYPE,
                  "--b\r\n"
                  "Content-Disposition: form-data; name=\"data\"; filename=\"k.txt\"\r\n"
                  "Content-Type: text/plain; charset=utf-8\r\n"
                  "\r\n"
                  "meow\r\n\r\n"
                  "--b\r\n"
                  "content-disposition: form-data; name=note\r\n"
                  "Content-Type: text/html\r\n"
                  "\r\n"
                  "\r\n"
                  "--b  \r\n"
                  "Content-Disposition: form-data; filename=x; name=\"a \\\"b\\\\\"\r\n"
                  "\r\n"
                  "--c\r\n"
                  "--b--\r\nanything"),
        0);
    assert_int_equal(f->parts.n, 3);
    assert_part(f, 0, "data", "text/plain", "meow\r\n");
    assert_part(f, 1, "note", "", "");
    assert_part(f, 2, "a \"b\\", "application/octet-stream", "--c");
}

/* Text before the first boundary is ignored. A form may be empty, and a boundary may be quoted. */
static void
odd_but_clear_forms_are_read(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(multipart(f, "multipart/form-data; charset=utf-8; boundary=\"b c\"",
                               "hello\r\n--b c\r\n"
                               "Content-Disposition: form-data; name=n\r\n\r\n1\r\n--b c--"),
                     0);
    assert_part(f, 0, "n", "", "1");
    assert_int_equal(multipart(f, TYPE, "--b--\r\n"), 0);
    assert_int_equal(f->parts.n, 0);
}

/* Everything else is the client's mistake, and the message says which. */
static void
broken_multipart_is_refused(void **state)
{
    static const struct {
        const char *type, *body, *why;
    } cases[] = {
        {"multipart/form-data", "--b--", "needs a boundary"},
        {"multipart/form-data; boundary=", "--", "1 to 70"},
        {"multipart/form-data; boundary=\"b", "--b--", "has no closing quote"},
        {"multipart/form-data; boundary=a; boundary=b", "--b--",
         "has the parameter boundary twice"},
        {"multipart/form-data; boundary=a@b", "--a@b--", "RFC 2046"},
        {TYPE, "", "ends before"},
        {TYPE, "1", "ends before"},
        {TYPE, "--b", "other text"},
        {TYPE, "--bc\r\n", "other text"},
        {TYPE, "--b\r\n", "are incomplete"},
        {TYPE, "--b\r\n\r\n1\r\n--b--", "no name"},
        {TYPE, "--b\r\nContent-Disposition: form-data\r\n\r\n1\r\n--b--", "no name"},
        {TYPE, "--b\r\nContent-Disposition: form-data; name=\"\"\r\n\r\n1\r\n--b--", "no name"},
        {TYPE, "--b\r\nContent-Disposition: attachment; name=x\r\n\r\n1\r\n--b--", "not form-data"},
        {TYPE, "--b\r\nContent-Disposition: form-data; name=x; name=y\r\n\r\n1\r\n--b--",
         "has the parameter name twice"},
        {TYPE,
         "--b\r\nContent-Disposition: form-data; name=x\r\n"
         "Content-Disposition: form-data; name=y\r\n\r\n1\r\n--b--",
         "two Content-Disposition headers"},
        {TYPE, "--b\r\nno header\r\n\r\n1\r\n--b--", "without a name"},
        {TYPE, "--b\r\na b: c\r\n\r\n1\r\n--b--", "malformed header line"},
        {TYPE,
         "--b\r\nContent-Disposition: form-data; name=x\r\n"
         "Content-Transfer-Encoding: base64\r\n\r\nMQ==\r\n--b--",
         "encoded as base64"},
        {TYPE, "--b\r\nContent-Disposition: form-data; name=x\r\n\r\n1", "ends before"},
        {TYPE, "--b\r\nContent-Disposition: form-data; name=x\r\n\r\n1\r\n--bb--", "other text"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(multipart(f, cases[i].type, cases[i].body), CN_E_BAD_REQUEST);
        if (!strstr(f->err.message, cases[i].why))
            fail_msg("%s: %s", cases[i].body, f->err.message);
    }
}

/* The number of parts, the headers of a part and its name have bounds. */
static void
large_forms_are_refused(void **state)
{
    struct fixture *f = *state;
    char name[CN_FORM_HEADERS_MAX + 2];
    struct cn_buf body;

    assert_int_equal(urlencoded(f, "a=&b=&c=&d=&e=&f=&g=&h="), 0);
    assert_int_equal(urlencoded(f, "a=&b=&c=&d=&e=&f=&g=&h=&i="), CN_E_BAD_REQUEST);
    assert_non_null(strstr(f->err.message, "max-request-parts"));
    for (size_t len = CN_FORM_NAME_MAX; len <= CN_FORM_HEADERS_MAX;
         len += CN_FORM_HEADERS_MAX / 4) {
        memset(name, 'x', len);
        name[len] = '\0';
        cn_buf_init(&body, 0);
        cn_buf_printf(&body, "--b\r\nContent-Disposition: form-data; name=%s\r\n\r\n1\r\n--b--",
                      name);
        assert_int_equal(multipart(f, TYPE, cn_arena_strndup(&f->arena, body.data, body.len)),
                         len == CN_FORM_NAME_MAX ? 0 : CN_E_BAD_REQUEST);
        cn_buf_fini(&body);
    }
}

/* A header may have thousands of parameters that nobody asks for. They take no memory. */
static void
other_parameters_take_no_memory(void **state)
{
    struct fixture *f = *state;
    struct cn_buf body;
    const char *text;
    size_t before;

    cn_buf_init(&body, 0);
    cn_buf_puts(&body, "--b\r\nContent-Disposition: form-data; name=\"n\"");
    while (body.len < CN_FORM_HEADERS_MAX - 100)
        cn_buf_puts(&body, ";a=\"x\\\"y\"");
    cn_buf_puts(&body, "\r\n\r\n1\r\n--b--");
    text = cn_arena_strndup(&f->arena, body.data, body.len);
    before = f->arena.used_bytes;
    assert_int_equal(multipart(f, TYPE, text), 0);
    assert_part(f, 0, "n", "", "1");
    assert_true(f->arena.used_bytes - before < CN_FORM_HEADERS_MAX);
    cn_buf_fini(&body);
}

/* A value may have any bytes. A word without "=" has an empty value, and a pair without a name is
 * dropped. */
static void
pairs_are_decoded(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(urlencoded(f, "a=1+2&&b%20c=%C3%a9=&lone&=none&d=&a=3"), 0);
    assert_int_equal(f->parts.n, 5);
    assert_part(f, 0, "a", "", "1 2");
    assert_part(f, 1, "b c", "", "\xc3\xa9=");
    assert_part(f, 2, "lone", "", "");
    assert_part(f, 3, "d", "", "");
    assert_part(f, 4, "a", "", "3");
    assert_int_equal(urlencoded(f, "z=%00"), 0);
    assert_int_equal(f->parts.list[0].data.len, 1);
    assert_int_equal(urlencoded(f, "z=%0"), CN_E_BAD_REQUEST);
    assert_int_equal(urlencoded(f, "z%x0=1"), CN_E_BAD_REQUEST);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_and_fields_are_told_apart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(odd_but_clear_forms_are_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(broken_multipart_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(large_forms_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_parameters_take_no_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pairs_are_decoded, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
