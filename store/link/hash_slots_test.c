/* store/link/hash_slots_test.c - slots of keys, and replies about slots, as real servers send them
 * and as none should. */
#include "store/link/hash_slots.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Reads a reply as the wire does. The caller frees it. */
static redisReply *
parse(const struct cn_hiredis **lib, const char *text)
{
    redisReader *reader;
    void *reply = NULL;

    if (cn_hiredis_open(lib, NULL) != 0) {
        print_message("skipped: hiredis is not installed (scripts/setup.sh installs it)\n");
        skip(); /* setup.sh installs it */
    }
    reader = (*lib)->create();
    assert_int_equal((*lib)->feed(reader, text, strlen(text)), REDIS_OK);
    assert_int_equal((*lib)->reply(reader, &reply), REDIS_OK);
    (*lib)->destroy(reader);
    assert_non_null(reply);
    return reply;
}

/* The slots that redis-server 7.0 gives for these keys (CLUSTER KEYSLOT). */
static void
a_key_has_the_slot_that_the_server_gives_it(void **state)
{
    (void)state;
    assert_int_equal(cn_hash_slot_of(CN_STR("123456789")), 12739);
    assert_int_equal(cn_hash_slot_of(CN_STR("foo")), 12182);
    assert_int_equal(cn_hash_slot_of(CN_STR("{foo}.bar")), 12182);
    assert_int_equal(cn_hash_slot_of(CN_STR("a{foo}b{bar}")), 12182);
    assert_int_equal(cn_hash_slot_of(CN_STR("{}foo")), cn_hash_slot_of(CN_STR("{}foo")));
    assert_int_not_equal(cn_hash_slot_of(CN_STR("{}foo")), cn_hash_slot_of(CN_STR("foo")));
    assert_int_not_equal(cn_hash_slot_of(CN_STR("foo{")), cn_hash_slot_of(CN_STR("foo")));
    assert_int_equal(cn_hash_slot_of(CN_STR("")), 0);
}

#define NODE(host, port) "*3\r\n" host ":" port "\r\n$2\r\nid\r\n"

static void
owners_are_read_with_their_addresses(void **state)
{
    static const uint16_t slots[] = {0, 100, 101, 16383};
    const struct cn_hiredis *lib;
    struct cn_hash_slot_owner owners[4] = {{.port = 9}};
    redisReply *reply =
        parse(&lib, "*3\r\n"
                    "*4\r\n:0\r\n:100\r\n" NODE("$9\r\n127.0.0.1\r\n", "7000")
                        NODE("$9\r\n127.0.0.1\r\n", "7003") "*3\r\n:200\r\n:16382\r\n" NODE(
                            "$3\r\n::1\r\n", "7001") "*3\r\n:16383\r\n:16383\r\n" NODE("$-1\r\n",
                                                                                       "7002"));

    (void)state;
    assert_true(cn_hash_slots_take(reply, "asked.example", slots, 4, owners));
    assert_string_equal(owners[0].host, "127.0.0.1");
    assert_int_equal(owners[0].port, 7000);
    assert_int_equal(owners[1].port, 7000);
    assert_int_equal(owners[2].port, 0); /* nobody has it */
    assert_string_equal(owners[3].host, "asked.example");
    assert_int_equal(owners[3].port, 7002);
    lib->free_reply(reply);
}

/* A reply that cannot be used leaves what was known. */
static void
other_replies_change_nothing(void **state)
{
    static const char *const bad[] = {
        "*0\r\n",
        "-ERR This instance has cluster support disabled\r\n",
        "$-1\r\n",
        "*1\r\n:5\r\n",
        "*1\r\n*2\r\n:0\r\n:16383\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*0\r\n",
        "*1\r\n*3\r\n$1\r\n0\r\n:16383\r\n" NODE("$1\r\na\r\n", "1"),
        "*1\r\n*3\r\n:0\r\n:16383\r\n" NODE("$1\r\na\r\n", "0"),
        "*1\r\n*3\r\n:0\r\n:16383\r\n" NODE("$1\r\na\r\n", "65536"),
        "*1\r\n*3\r\n:0\r\n:16383\r\n" NODE("$1\r\n?\r\n", "7000"),
        "*1\r\n*3\r\n:0\r\n:16383\r\n" NODE(":5\r\n", "7000"),
        "*1\r\n*3\r\n:6\r\n:16383\r\n" NODE("$1\r\na\r\n", "7000"),
    };
    static const uint16_t slots[] = {5};
    const struct cn_hiredis *lib;
    struct cn_hash_slot_owner owner = {"before", 9};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        redisReply *reply = parse(&lib, bad[i]);

        assert_false(cn_hash_slots_take(reply, "h", slots, 1, &owner));
        assert_string_equal(owner.host, "before");
        assert_int_equal(owner.port, 9);
        lib->free_reply(reply);
    }
}

static void
redirections_are_read(void **state)
{
    struct cn_redirect to;

    (void)state;
    assert_true(cn_hash_slot_redirect(CN_STR("MOVED 3999 127.0.0.1:6381"), "h", &to));
    assert_false(to.ask);
    assert_string_equal(to.to.host, "127.0.0.1");
    assert_int_equal(to.to.port, 6381);
    assert_true(cn_hash_slot_redirect(CN_STR("ASK 3999 fe80::1:6381"), "h", &to));
    assert_true(to.ask);
    assert_string_equal(to.to.host, "fe80::1");
    assert_true(cn_hash_slot_redirect(CN_STR("MOVED 3999 :6381"), "h", &to));
    assert_string_equal(to.to.host, "h");
    assert_false(cn_hash_slot_redirect(CN_STR("MOVED 3999 ?:6381"), "h", &to));
    assert_false(cn_hash_slot_redirect(CN_STR("MOVED"), "h", &to));
    assert_false(cn_hash_slot_redirect(CN_STR("MOVED 1"), "h", &to));
    assert_false(cn_hash_slot_redirect(CN_STR("MOVED 1 a"), "h", &to));
    assert_false(cn_hash_slot_redirect(CN_STR("MOVED 1 a:"), "h", &to));
    assert_false(cn_hash_slot_redirect(CN_STR("MOVED 1 a:6x"), "h", &to));
    assert_false(cn_hash_slot_redirect(CN_STR("MOVED 1 a:99999999999999999999999999"), "h", &to));
    assert_false(cn_hash_slot_redirect(CN_STR("MOVEDX 1 a:1"), "h", &to));
    assert_false(cn_hash_slot_redirect(CN_STR(""), "h", &to));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_has_the_slot_that_the_server_gives_it),
        cmocka_unit_test(owners_are_read_with_their_addresses),
        cmocka_unit_test(other_replies_change_nothing),
        cmocka_unit_test(redirections_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
