/* frontend/http/browser_checks_test.c - which requests of browsers may manage the server. */
#include "frontend/http/browser_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct row {
    const char *site, *origin, *host, *allowed;
    int rc;
};

typedef int check_fn(const struct cn_header *headers, uint32_t n, const char *allowed_origin,
                     struct cn_error *err);

static int
check(check_fn *fn, const struct row *row)
{
    struct cn_header headers[3];
    uint32_t n = 0;
    struct cn_error err;

    if (row->site)
        headers[n++] = (struct cn_header){CN_STR("Sec-Fetch-Site"), cn_str_from(row->site)};
    if (row->origin)
        headers[n++] = (struct cn_header){CN_STR("Origin"), cn_str_from(row->origin)};
    if (row->host)
        headers[n++] = (struct cn_header){CN_STR("Host"), cn_str_from(row->host)};
    return fn(headers, n, row->allowed, &err);
}

/* The browser says whose page has sent the request. Programs that are not browsers say nothing. */
static void
pages_of_other_sites_are_refused(void **state)
{
    static const struct row rows[] = {
        {NULL, NULL, "localhost:8081", NULL, 0},
        {"none", NULL, "localhost:8081", NULL, 0},
        {"same-origin", "http://admin.example", "backend:8081", NULL, 0},
        {"cross-site", NULL, "localhost:8081", NULL, CN_E_FOREIGN_SITE},
        {"same-site", "http://localhost:3000", "localhost:8081", NULL, CN_E_FOREIGN_SITE},
        {"nonsense", NULL, "localhost:8081", NULL, CN_E_FOREIGN_SITE},
        {NULL, "http://localhost:8081", "localhost:8081", NULL, 0},
        {NULL, "https://LOCALHOST:8081", "localhost:8081", NULL, 0},
        {NULL, "http://localhost:8080", "localhost:8081", NULL, CN_E_FOREIGN_SITE},
        {NULL, "http://evil.example", "localhost:8081", NULL, CN_E_FOREIGN_SITE},
        {NULL, "http://evillocalhost:8081", "localhost:8081", NULL, CN_E_FOREIGN_SITE},
        {NULL, "null", "localhost:8081", NULL, CN_E_FOREIGN_SITE},
        {NULL, "http://", "", NULL, CN_E_FOREIGN_SITE},
        {NULL, "http://a.example", NULL, NULL, CN_E_FOREIGN_SITE},
        {"cross-site", "http://ui.example", "localhost:8081", "http://ui.example", 0},
        {"cross-site", "http://ui.example.evil", "localhost:8081", "http://ui.example",
         CN_E_FOREIGN_SITE},
        {"cross-site", "http://any.example", "localhost:8081", "*", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(check(cn_browser_check_origin, &rows[i]), rows[i].rc);
}

/* A proxy that rewrites Host makes the Origin of its own pages look foreign, so steps are refused
 * for Sec-Fetch-Site alone. */
static void
steps_for_pages_of_other_sites_are_refused(void **state)
{
    static const struct row rows[] = {
        {NULL, NULL, "localhost:8080", NULL, 0},
        {NULL, "http://app.example", "upstream", NULL, 0},
        {"none", NULL, "localhost:8080", NULL, 0},
        {"same-origin", "http://app.example", "upstream", NULL, 0},
        {"cross-site", NULL, "localhost:8080", NULL, CN_E_FOREIGN_SITE},
        {"same-site", "http://localhost:3000", "localhost:8080", NULL, CN_E_FOREIGN_SITE},
        {"cross-site", "http://ui.example", "localhost:8080", "http://ui.example", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(check(cn_browser_check_step, &rows[i]), rows[i].rc);
}

static int
check_host(const char *host, const char *allowed)
{
    const struct cn_header header = {CN_STR("host"), cn_str_from(host)};
    struct cn_error err;

    return cn_browser_check_host(&header, host ? 1 : 0, allowed, &err);
}

/* A name that somebody else controls must not stand for this server. */
static void
foreign_hosts_are_refused(void **state)
{
    static const char *const good[] = {"localhost",  "LocalHost:8081", "127.0.0.1:8081", "10.1.2.3",
                                       "[::1]:8081", "[fe80::1]",      "a.localhost",    ""};
    static const char *const bad[] = {
        "evil.example",
        "evil.example:8081",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "[evil]",
        "[::1",
        "evillocalhost",
        "1.2.3",
        "::1",
        ":8081",
        "2130706433",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_int_equal(check_host(good[i], NULL), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(check_host(bad[i], "a.example"), CN_E_FOREIGN_SITE);
    assert_int_equal(check_host(NULL, NULL), 0);
    assert_int_equal(check_host("b.example:80", "a.example, b.example"), 0);
    assert_int_equal(check_host("B.Example", "a.example,b.example"), 0);
    assert_int_equal(check_host("c.example", "a.example,b.example"), CN_E_FOREIGN_SITE);
    assert_int_equal(check_host("c.example", ",,"), CN_E_FOREIGN_SITE);
    assert_int_equal(check_host("evil.example", "*"), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_other_sites_are_refused),
        cmocka_unit_test(steps_for_pages_of_other_sites_are_refused),
        cmocka_unit_test(foreign_hosts_are_refused),
    };

    return cmocka_run_group_tests_name("frontend.browser_checks", tests, NULL, NULL);
}
