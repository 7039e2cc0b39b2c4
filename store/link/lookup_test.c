/* store/link/lookup_test.c - looking up a name ends in time, however slow the resolver is. The
 * test takes getaddrinfo()'s place (see CMakeLists.txt). */
#include "store/link/lookup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "core/time/clock.h"

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *wanted,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *wanted,
                       struct addrinfo **out);

static pthread_mutex_t resolver = PTHREAD_MUTEX_INITIALIZER; /* held: it does not answer */
static atomic_int asked;                                     /* how often it was asked for a name */

int
__wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *wanted,
                   struct addrinfo **out)
{
    if (wanted->ai_flags & AI_NUMERICHOST)
        return __real_getaddrinfo(host, port, wanted, out);
    atomic_fetch_add(&asked, 1);
    pthread_mutex_lock(&resolver);
    pthread_mutex_unlock(&resolver);
    return __real_getaddrinfo("127.0.0.1", port, wanted, out);
}

/* Each call ends at its deadline, all of them wait for one thread, and the last one gets what the
 * resolver finds in the end. */
static void
a_slow_resolver_is_not_waited_for(void **state)
{
    struct cn_lookup *pending = NULL;
    struct addrinfo *found;

    (void)state;
    pthread_mutex_lock(&resolver);
    for (int i = 0; i < 3; i++) {
        const uint64_t deadline_us = cn_now_us() + 20000;

        assert_int_equal(cn_lookup_host(&pending, "store.example", 6379, deadline_us, &found),
                         EAI_AGAIN);
        assert_null(found);
        assert_true(cn_now_us() >= deadline_us);
    }
    assert_int_equal(cn_lookup_host(&pending, "other.example", 6379, cn_now_us() + 20000, &found),
                     EAI_AGAIN);
    assert_int_equal(cn_lookup_host(&pending, "::1", 6379, 0, &found), 0); /* not a name */
    freeaddrinfo(found);
    pthread_mutex_unlock(&resolver);
    assert_int_equal(
        cn_lookup_host(&pending, "store.example", 6379, cn_now_us() + 60000000, &found), 0);
    assert_non_null(found);
    freeaddrinfo(found);
    assert_null(pending);
    assert_int_equal(atomic_load(&asked), 1);
}

/* The owner may go while the thread still waits. */
static void
a_forgotten_lookup_ends_by_itself(void **state)
{
    struct cn_lookup *pending = NULL;
    struct addrinfo *found;

    (void)state;
    pthread_mutex_lock(&resolver);
    assert_int_equal(cn_lookup_host(&pending, "late.example", 1, cn_now_us() + 20000, &found),
                     EAI_AGAIN);
    assert_non_null(pending);
    cn_lookup_forget(pending);
    pthread_mutex_unlock(&resolver);
    cn_lookup_forget(NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_resolver_is_not_waited_for),
        cmocka_unit_test(a_forgotten_lookup_ends_by_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
