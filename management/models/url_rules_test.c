/* management/models/url_rules_test.c - tests which URLs and which addresses are allowed. */
#include "management/models/url_rules.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool
allows(const char *patterns, const char *url)
{
    struct cn_url_rules *rules;
    struct cn_error err;
    bool yes;

    if (cn_url_rules_create(patterns, &rules, &err))
        fail_msg("%s", err.message);
    assert_int_equal(cn_url_rules_are_set(rules), patterns != NULL);
    yes = cn_url_rules_allow(rules, url);
    cn_url_rules_destroy(rules);
    return yes;
}

/* TorchServe's rules: one of the expressions must match the whole URL, without regard to case. */
static void
one_pattern_must_match_the_whole_url(void **state)
{
    static const char two[] = "https://models\\.example\\.com/.*,file:///srv/.*";

    (void)state;
    assert_true(allows(two, "https://models.example.com/a.mar"));
    assert_true(allows(two, "HTTPS://Models.Example.Com/a.mar"));
    assert_true(allows(two, "file:///srv/a.mar"));
    assert_false(allows(two, "https://models.example.com.evil.org/a.mar"));
    assert_false(allows(two, "https://evil.org/?https://models.example.com/a.mar"));
    assert_false(allows(two, "https://modelsXexample.com/a.mar"));
    assert_false(allows(two, "file:///etc/a.mar"));
    assert_true(allows("file://.*|http(s)?://.*", "http://a/b"));
    assert_false(allows("a|http://good/.*", "http://bad/a"));
    assert_false(allows("", "http://a/b"));
    assert_true(allows(NULL, "http://a/b"));
    assert_false(allows(NULL, "ftp://a/b"));
    assert_false(allows(".*", "gopher://a/b"));
}

/* A wrong expression is reported at the start, not at the first register call. */
static void
a_bad_pattern_is_named(void **state)
{
    struct cn_url_rules *rules;
    struct cn_error err;

    (void)state;
    assert_int_equal(cn_url_rules_create("http://a/.*,http://(b", &rules, &err), CN_E_CONFIG);
    assert_non_null(strstr(err.message, "\"http://(b\" is not a valid regular expression"));
}

static bool
is_private(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return cn_address_is_private((const struct sockaddr *)&v4);
    assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return cn_address_is_private((const struct sockaddr *)&v6);
}

/* A private address is refused in every spelling, because one way around the rule would be enough.
 */
static void
private_addresses_are_known(void **state)
{
    static const char *const inside[] = {"127.0.0.1",
                                         "127.9.9.9",
                                         "10.1.2.3",
                                         "172.16.0.1",
                                         "172.31.255.255",
                                         "192.168.0.1",
                                         "0.0.0.0",
                                         "169.254.169.254",
                                         "100.64.0.1",
                                         "224.0.0.1",
                                         "255.255.255.255",
                                         "::1",
                                         "::",
                                         "fe80::1",
                                         "fd00::1",
                                         "ff02::1",
                                         "::ffff:127.0.0.1",
                                         "::ffff:10.0.0.1",
                                         "64:ff9b::a9fe:a9fe",
                                         "2002:7f00:1::",
                                         "2001::1",
                                         "198.18.0.1",
                                         "192.0.2.1",
                                         "198.51.100.1",
                                         "203.0.113.255",
                                         "192.88.99.1",
                                         "2001:db8::1",
                                         "::127.0.0.1"};
    static const char *const outside[] = {
        "8.8.8.8",        "172.32.0.1",       "172.15.255.255", "192.169.0.1", "11.0.0.1",
        "100.128.0.1",    "223.255.0.1",      "203.0.114.0",    "2001:db9::1", "2606:4700::1111",
        "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::"};
    const struct sockaddr local = {.sa_family = AF_UNIX};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof inside / sizeof *inside; i++)
        if (!is_private(inside[i]))
            fail_msg("%s is taken for public", inside[i]);
    for (i = 0; i < sizeof outside / sizeof *outside; i++)
        if (is_private(outside[i]))
            fail_msg("%s is taken for private", outside[i]);
    assert_true(cn_address_is_private(&local));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_pattern_must_match_the_whole_url),
        cmocka_unit_test(a_bad_pattern_is_named),
        cmocka_unit_test(private_addresses_are_known),
    };

    return cmocka_run_group_tests_name("management.url_rules", tests, NULL, NULL);
}
