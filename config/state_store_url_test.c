/* config/state_store_url_test.c - URLs of the shared state store: what they say, and that nothing
 * shows a password. */
#include "config/state_store_url.h"

#include "config/test_support.h"

static struct cn_state_store_url url;

static void
reads(const char *text)
{
    struct cn_error err = {0};

    if (cn_state_store_url_parse(cn_str_from(text), &url, &err) != 0)
        fail_msg("%s: %s", text, err.message);
}

static void
refuses(const char *text, const char *why)
{
    struct cn_error err = {0};

    assert_int_equal(cn_state_store_url_parse(cn_str_from(text), &url, &err), CN_E_CONFIG);
    assert_contains(err.message, why);
    if (strstr(err.message, "secret"))
        fail_msg("the message shows the password: %s", err.message);
}

/* The embedded store is the default, so "" and its name must mean it. */
static void
embedded_is_not_shared(void **state)
{
    (void)state;
    reads("");
    assert_false(url.shared);
    reads("embedded");
    assert_false(url.shared);
}

static void
parts_have_defaults(void **state)
{
    (void)state;
    reads("valkey://localhost");
    assert_true(url.shared);
    assert_int_equal(url.n_hosts, 1);
    assert_string_equal(url.hosts[0].host, "localhost");
    assert_int_equal(url.hosts[0].port, 6379);
    assert_string_equal(url.prefix, "continuo");
    assert_string_equal(url.user, "");
    assert_string_equal(url.password, "");
    reads("redis://localhost/");
    assert_string_equal(url.prefix, "continuo");
}

static void
every_part_is_read(void **state)
{
    (void)state;
    reads("valkey://me:se%3Acr%40et@10.0.0.1:7000,[fe80::1%eth0]:7001,c.example/team-a");
    assert_string_equal(url.user, "me");
    assert_string_equal(url.password, "se:cr@et");
    assert_int_equal(url.n_hosts, 3);
    assert_string_equal(url.hosts[0].host, "10.0.0.1");
    assert_int_equal(url.hosts[0].port, 7000);
    assert_string_equal(url.hosts[1].host, "fe80::1%eth0");
    assert_int_equal(url.hosts[1].port, 7001);
    assert_string_equal(url.hosts[2].host, "c.example");
    assert_int_equal(url.hosts[2].port, 6379);
    assert_string_equal(url.prefix, "team-a");
    reads("redis://:p@ss/word@h"); /* the last @ ends the password */
    assert_string_equal(url.user, "");
    assert_string_equal(url.password, "p@ss/word");
}

static void
sentinels_watch_a_primary_with_a_name(void **state)
{
    (void)state;
    reads("valkey+sentinel://me:p@a,b:7000/mymaster");
    assert_true(url.shared && !url.tls);
    assert_int_equal(url.n_hosts, 2);
    assert_int_equal(url.hosts[0].port, 26379);
    assert_int_equal(url.hosts[1].port, 7000);
    assert_string_equal(url.master, "mymaster");
    assert_string_equal(url.prefix, "continuo");
    reads("redis+sentinel://a/0/team-a"); /* a name may be a number */
    assert_string_equal(url.master, "0");
    assert_string_equal(url.prefix, "team-a");
    reads("valkey://a/mymaster");
    assert_string_equal(url.master, "");
}

static void
a_cluster_is_named_by_some_of_its_nodes(void **state)
{
    (void)state;
    reads("valkey+cluster://me:p@a,b:7000/team-a");
    assert_true(url.shared && url.cluster && !url.tls);
    assert_int_equal(url.n_hosts, 2);
    assert_int_equal(url.hosts[0].port, 6379);
    assert_string_equal(url.master, "");
    assert_string_equal(url.prefix, "team-a");
    reads("redis+cluster://a");
    assert_true(url.cluster);
    reads("rediss+cluster://a?ca=x");
    assert_true(url.cluster && url.tls);
    reads("valkey://a");
    assert_false(url.cluster);
}

static void
tls_has_files_and_a_name(void **state)
{
    (void)state;
    reads("rediss://:p@h:1/team?ca=/etc/ca%20x.pem&certificate=/c&key=/k&name=store.example");
    assert_true(url.tls);
    assert_string_equal(url.prefix, "team");
    assert_string_equal(url.ca, "/etc/ca x.pem");
    assert_string_equal(url.certificate, "/c");
    assert_string_equal(url.key, "/k");
    assert_string_equal(url.name, "store.example");
    /* An @ in a file's path, as systemd's credentials have it, is not that of a login. */
    reads("valkeys://h:1/team?ca=/run/credentials/continuo@a.service/ca.pem");
    assert_string_equal(url.password, "");
    assert_string_equal(url.hosts[0].host, "h");
    assert_string_equal(url.ca, "/run/credentials/continuo@a.service/ca.pem");
    reads("valkeys://me:p?k=@y@h?name=a&ca=/b@c");
    assert_string_equal(url.user, "me");
    assert_string_equal(url.password, "p?k=@y");
    assert_string_equal(url.hosts[0].host, "h");
    assert_string_equal(url.ca, "/b@c");
    reads("valkeys+sentinel://h/m?ca=x");
    assert_true(url.tls);
    assert_string_equal(url.master, "m");
    reads("valkeys://h");
    assert_string_equal(url.ca, "");
}

/* A mistake near the password must not put it into a log. */
static void
mistakes_are_named_without_the_password(void **state)
{
    char many[400] = "valkey://h";

    (void)state;
    refuses("http://:secret@h", "valkey://");
    refuses("valkey://secret@h", "no password");
    refuses("valkey://user:@h", "is empty");
    refuses("valkey://user:secret", "an @ behind it");
    refuses("valkey://:secret%4@h", "%25");
    refuses("valkey://:secret%00@h", "zero byte");
    refuses("valkey://:secret@", "is empty");
    refuses("valkey://:secret@h:0", "1 to 65535");
    refuses("valkey://:secret@h:65536", "1 to 65535");
    refuses("valkey://:secret@h:", "1 to 65535");
    refuses("valkey://:secret@h,", "is empty");
    refuses("valkey://:secret@[::1", "without a ]");
    refuses("valkey://:secret@[::1]x", "behind its ]");
    refuses("valkey://:secret@h h", "letters, digits");
    refuses("valkey://:secret@h/a{b}", "the prefix");
    refuses("valkey://:secret@h/a/b", "the prefix");
    refuses("valkey://:secret@h/0", "database 0");
    refuses("valkey+sentinel://:secret@h", "which primary they watch");
    refuses("valkey+sentinel://:secret@h/", "which primary they watch");
    refuses("valkey+sentinel://:secret@h/a b", "the name of the primary");
    refuses("valkey+sentinel://:secret@h/m/0", "database 0");
    refuses("valkey+sentinel://:secret@h/m/a/b", "the prefix");
    refuses("valkey://:secret@h?ca=f", "only URLs with TLS");
    refuses("rediss://:secret@h?cafile=f", "the URL may have ca=FILE");
    refuses("rediss://:secret@h?", "the URL may have ca=FILE");
    refuses("rediss://:secret@h?ca=", "without a value");
    refuses("rediss://:secret@h?ca=a&ca=b", "or twice");
    refuses("rediss://:secret@h?ca=%4", "value of ca");
    refuses("rediss://:secret@h?key=k", "needs both files");
    refuses("rediss://:secret@h?certificate=c&ca=a", "needs both files");
    refuses("valkey+cluster://:secret@h/0", "database 0");
    refuses("valkey+cluster://:secret@h?ca=f", "only URLs with TLS");
    for (int i = 0; i < 8; i++)
        strcat(many, ",h");
    refuses(many, "more than 8 hosts");
}

static void
shown_without_password(void **state)
{
    char out[CN_STATE_STORE_SHOWN_MAX];

    (void)state;
    assert_string_equal(cn_state_store_url_shown("valkey://me:se:cr@et@h:1/p", out),
                        "valkey://me:***@h:1/p");
    assert_string_equal(cn_state_store_url_shown("redis://:secret@h", out), "redis://:***@h");
    assert_string_equal(cn_state_store_url_shown("redis://h:1/p", out), "redis://h:1/p");
}

static void
the_text_is_kept_only_if_it_is_good(void **state)
{
    struct cn_state_store_text text = {"before"};

    (void)state;
    assert_int_equal(cn_state_store_text_set(&text, CN_STR("valkey://"), NULL), CN_E_CONFIG);
    assert_string_equal(text.url, "before");
    assert_int_equal(cn_state_store_text_set(&text, CN_STR("valkey://h"), NULL), 0);
    assert_string_equal(text.url, "valkey://h");
    assert_int_equal(cn_state_store_text_set(&text, CN_STR("embedded"), NULL), 0);
    assert_string_equal(text.url, "");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedded_is_not_shared),
        cmocka_unit_test(parts_have_defaults),
        cmocka_unit_test(every_part_is_read),
        cmocka_unit_test(sentinels_watch_a_primary_with_a_name),
        cmocka_unit_test(a_cluster_is_named_by_some_of_its_nodes),
        cmocka_unit_test(tls_has_files_and_a_name),
        cmocka_unit_test(mistakes_are_named_without_the_password),
        cmocka_unit_test(shown_without_password),
        cmocka_unit_test(the_text_is_kept_only_if_it_is_good),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
