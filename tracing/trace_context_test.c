/* tracing/trace_context_test.c - what callers send as traceparent is read by the standard's rules.
 */
#include "tracing/trace_context.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define SPAN "b7ad6b7169203331"
#define ZEROS "00000000000000000000000000000000"

static bool
reads(const char *text, struct cn_trace_context *out)
{
    return cn_traceparent_read(cn_str_from(text), out);
}

/* What is read and written again is the same text: the caller's trace goes on unchanged. */
static void
a_valid_value_is_read_and_written_again(void **state)
{
    struct cn_trace_context context;
    char text[CN_TRACEPARENT_LEN + 1];

    (void)state;
    assert_true(reads("00-" TRACE "-" SPAN "-01", &context));
    assert_int_equal(context.flags, CN_TRACE_FLAG_SAMPLED);
    assert_int_equal(context.trace_id[0], 0x0a);
    assert_int_equal(context.parent_id[7], 0x31);
    cn_traceparent_write(context.trace_id, context.parent_id, context.flags, text);
    assert_string_equal(text, "00-" TRACE "-" SPAN "-01");
    assert_true(reads("00-" TRACE "-" SPAN "-00", &context));
    assert_int_equal(context.flags, 0);
}

/* A later version may have more behind the flags; what version 00 defines stays in its place. */
static void
a_later_version_is_read_as_far_as_it_is_known(void **state)
{
    struct cn_trace_context context;

    (void)state;
    assert_true(reads("cc-" TRACE "-" SPAN "-01", &context));
    assert_true(reads("cc-" TRACE "-" SPAN "-01-what-the-future-brings", &context));
    assert_false(reads("cc-" TRACE "-" SPAN "-01.what", &context));
}

/* The standard names these as invalid. A server that took one of them would break the caller's
 * trace. */
static void
invalid_values_are_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        "00",
        "garbage",
        "00-" TRACE "-" SPAN,
        "00-" TRACE "-" SPAN "-1",
        "00-" TRACE "-" SPAN "-01-more",
        "00-" TRACE "-" SPAN "-01 ",
        " 00-" TRACE "-" SPAN "-01",
        "ff-" TRACE "-" SPAN "-01",
        "00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01",
        "00-" ZEROS "-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01",
        "00_" TRACE "_" SPAN "_01",
        "00-" TRACE "-" SPAN "-0x",
        "zz-" TRACE "-" SPAN "-01",
    };
    struct cn_trace_context context;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (reads(wrong[i], &context))
            fail_msg("was taken: %s", wrong[i]);
}

static void
a_tracestate_is_bounded_and_printable(void **state)
{
    char long_one[CN_TRACESTATE_MAX + 1];

    (void)state;
    memset(long_one, 'a', sizeof(long_one));
    assert_true(cn_tracestate_is_valid(CN_STR("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")));
    assert_true(cn_tracestate_is_valid((struct cn_str){long_one, CN_TRACESTATE_MAX}));
    assert_false(cn_tracestate_is_valid((struct cn_str){long_one, CN_TRACESTATE_MAX + 1}));
    assert_false(cn_tracestate_is_valid(CN_STR("a=b\nc=d")));
    assert_false(cn_tracestate_is_valid(CN_STR("a=\xc3\xa4")));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_valid_value_is_read_and_written_again),
        cmocka_unit_test(a_later_version_is_read_as_far_as_it_is_known),
        cmocka_unit_test(invalid_values_are_refused),
        cmocka_unit_test(a_tracestate_is_bounded_and_printable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
