/* grpc/protobuf_message_test.c - messages in and out, within their limits. */
#include "grpc/protobuf_message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <grpc/reflection/v1/reflection.pb-c.h>
#include <management.pb-c.h>
#include <v2_inference.pb-c.h>

#include "core/text/varint.h"

static const ProtobufCMessageDescriptor *const describe_type =
    &org__pytorch__serve__grpc__management__describe_model_request__descriptor;

static void
messages_are_unpacked_into_the_arena(void **state)
{
    Org__Pytorch__Serve__Grpc__Management__DescribeModelRequest *request;
    struct cn_arena arena;
    struct cn_error err;

    (void)state;
    cn_arena_init(&arena);
    request = cn_rpc_unpack(describe_type, &arena,
                            CN_STR("\x0a\x01m\x12\x03"
                                   "1.0\x18\x01"),
                            &err);
    assert_non_null(request);
    assert_string_equal(request->model_name, "m");
    assert_string_equal(request->model_version, "1.0");
    assert_true(request->customized);
    request = cn_rpc_unpack(describe_type, &arena, (struct cn_str){NULL, 0}, &err);
    assert_non_null(request);
    assert_string_equal(request->model_name, "");
    cn_arena_fini(&arena);
}

/* Each refusal says what was wrong. */
static void
bytes_that_are_no_message_are_refused(void **state)
{
    struct cn_arena arena;
    struct cn_error err;

    (void)state;
    cn_arena_init(&arena);
    assert_null(cn_rpc_unpack(describe_type, &arena,
                              CN_STR("\x0a\x05"
                                     "ab"),
                              &err));
    assert_int_equal(err.code, CN_E_BAD_REQUEST);
    assert_null(cn_rpc_unpack(describe_type, &arena, CN_STR("\x0a\x02\xff\xfe"), &err));
    assert_int_equal(err.code, CN_E_BAD_REQUEST);
    assert_string_equal(err.message, "model_name is not UTF-8");
    cn_arena_fini(&arena);
}

/* protobuf-c keeps each unknown field, which takes two bytes on the wire and forty in memory. The
 * limit of the arena refuses such a message. */
static void
a_small_message_can_not_take_much_memory(void **state)
{
    static char bytes[200000];
    struct cn_arena arena;
    struct cn_error err;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(bytes); i += 2) {
        bytes[i] = 0x7a; /* field 15, length-delimited, empty */
        bytes[i + 1] = 0;
    }
    cn_arena_init(&arena);
    assert_null(cn_rpc_unpack(describe_type, &arena, (struct cn_str){bytes, sizeof(bytes)}, &err));
    assert_int_equal(err.code, CN_E_TOO_LARGE);
    assert_true(arena.used_bytes <= CN_RPC_UNPACK_BYTES + 4096);
    cn_arena_fini(&arena);
}

static void
fields_are_read_one_by_one(void **state)
{
    struct cn_str rest = CN_STR("\x08\x96\x01\x12\x02hi\x1d\x01\x02\x03\x04\x21\x01\0\0\0\0\0\0\0");
    struct cn_rpc_field field;

    (void)state;
    assert_int_equal(cn_rpc_next_field(&rest, &field), 1);
    assert_int_equal(field.number, 1);
    assert_int_equal(field.value, 150);
    assert_int_equal(cn_rpc_next_field(&rest, &field), 1);
    assert_true(field.has_bytes);
    assert_true(cn_str_eq(field.bytes, CN_STR("hi")));
    assert_int_equal(cn_rpc_next_field(&rest, &field), 1);
    assert_int_equal(field.value, 0x04030201);
    assert_int_equal(cn_rpc_next_field(&rest, &field), 1);
    assert_int_equal(field.value, 1);
    assert_int_equal(cn_rpc_next_field(&rest, &field), 0);
}

/* The cases are all the ways in which a field can be cut short or wrong. */
static void
broken_fields_are_noticed(void **state)
{
    static const struct cn_str broken[] = {
        {"\x08", 1},
        {"\x08\x80", 2},
        {"\x0a\x05"
         "a",
         3},
        {"\x0b", 1},
        {"\x0c", 1},
        {"\x0e\x01", 2},
        {"\x00\x01", 2},
        {"\x0d\x01\x02", 3},
        {"\x09\x01\x02", 3},
        {"\x0a\x80", 2},
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11},
        {"\xff\xff\xff\xff\xff\xff\x01\x01", 8},
    };
    struct cn_rpc_field field;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        struct cn_str rest = broken[i];

        assert_int_equal(cn_rpc_next_field(&rest, &field), -1);
    }
}

static void
heads_are_written_as_they_are_read(void **state)
{
    static const size_t lengths[] = {0, 1, 127, 128, 16383, 16384, 1u << 30};
    struct cn_rpc_field field;
    char bytes[CN_RPC_FIELD_MAX];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        char *end = cn_put_varint(lengths[i], cn_put_varint(8, bytes));
        struct cn_str rest = {bytes, (size_t)(end - bytes)};

        assert_int_equal(cn_rpc_next_field(&rest, &field), 1);
        assert_int_equal(field.number, 1);
        assert_int_equal(field.value, lengths[i]);
        end = cn_rpc_put_head(bytes, 3, lengths[i]);
        assert_int_equal(bytes[0], 3 << 3 | 2);
        assert_true(end - bytes <= CN_RPC_FIELD_MAX);
    }
}

/* Strings are checked in the messages inside a message as well: in the entries of maps, in the
 * members of lists, and in the member of a oneof that is set. */
static void
strings_of_inner_messages_are_looked_at_too(void **state)
{
    /* settings: key "k", value { value: the string } */
    static const char good_list[] = "\x0a\x0a\x0a\x01k\x12\x05\x0a\x03\xe2\x82\xac";
    static const char bad_list[] = "\x0a\x0a\x0a\x01k\x12\x05\x0a\x03\xe2\x82(";
    static const char bad_key[] = "\x0a\x03\x0a\x01\xff";
    /* file_containing_extension { containing_type } */
    static const char good_inner[] = "\x2a\x03\x0a\x01t";
    static const char bad_inner[] = "\x2a\x03\x0a\x01\xff";
    const ProtobufCMessageDescriptor *settings = &inference__trace_setting_request__descriptor;
    const ProtobufCMessageDescriptor *reflection =
        &grpc__reflection__v1__server_reflection_request__descriptor;
    const struct {
        const ProtobufCMessageDescriptor *type;
        struct cn_str bytes;
        const char *bad;
    } cases[] = {
        {settings, {good_list, sizeof(good_list) - 1}, NULL},
        {settings, {bad_list, sizeof(bad_list) - 1}, "value is not UTF-8"},
        {settings, {bad_key, sizeof(bad_key) - 1}, "key is not UTF-8"},
        {reflection, {good_inner, sizeof(good_inner) - 1}, NULL},
        {reflection, {bad_inner, sizeof(bad_inner) - 1}, "containing_type is not UTF-8"},
    };
    struct cn_arena arena;
    struct cn_error err;

    (void)state;
    cn_arena_init(&arena);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const void *message = cn_rpc_unpack(cases[i].type, &arena, cases[i].bytes, &err);

        assert_int_equal(message == NULL, cases[i].bad != NULL);
        if (cases[i].bad)
            assert_string_equal(err.message, cases[i].bad);
    }
    cn_arena_fini(&arena);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_of_inner_messages_are_looked_at_too),
        cmocka_unit_test(messages_are_unpacked_into_the_arena),
        cmocka_unit_test(bytes_that_are_no_message_are_refused),
        cmocka_unit_test(a_small_message_can_not_take_much_memory),
        cmocka_unit_test(fields_are_read_one_by_one),
        cmocka_unit_test(broken_fields_are_noticed),
        cmocka_unit_test(heads_are_written_as_they_are_read),
    };

    return cmocka_run_group_tests_name("rpc.message", tests, NULL, NULL);
}
