/* frontend/access/http_certificate_test.c - what a connection's certificate allows, where no client
 * of a test can bring the server into such a state. */
#include "frontend/access/http_certificate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/time/clock.h"
#include "frontend/http/http_request.h"

static struct cn_server_config config;
static const struct cn_http_shared shared = {.config = &config};
static struct cn_http_listener listener = {.shared = &shared};
static struct cn_http_conn conn;
static struct cn_http_request request = {.listener = &listener, .conn = &conn};

/* Over plain HTTP there is none, whether or not --client-ca is set. */
static void
plain_http_has_no_certificate(void **state)
{
    const struct cn_certificate *out;
    struct cn_error err;
    char ca[] = "ca.pem";

    (void)state;
    config.client_ca = ca;
    assert_int_equal(cn_http_check_certificate(&request, &out, &err), 0); /* plain HTTP */
    config.client_ca = NULL;
    assert_int_equal(cn_http_check_certificate(&request, &out, &err), 0);
    assert_true(cn_http_certificate_ends_ms(&conn) == CN_NEVER);
}

/* "*" is for pages that have a key of their own. */
static void
a_certificate_is_not_for_all_origins(void **state)
{
    char all[] = "*", one[] = "https://app.example", ca[] = "ca.pem";

    (void)state;
    config.client_ca = ca;
    config.cors_allowed_origin = all;
    request.by_certificate = false;
    assert_string_equal(cn_http_allowed_origin(&request), "*");
    request.by_certificate = true;
    assert_null(cn_http_allowed_origin(&request));
    assert_false(cn_http_allows_credentials(&config));
    config.cors_allowed_origin = one;
    assert_string_equal(cn_http_allowed_origin(&request), one);
    assert_true(cn_http_allows_credentials(&config));
    config.client_ca = NULL;
    assert_false(cn_http_allows_credentials(&config));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_http_has_no_certificate),
        cmocka_unit_test(a_certificate_is_not_for_all_origins),
    };

    return cmocka_run_group_tests_name("http_certificate", tests, NULL, NULL);
}
