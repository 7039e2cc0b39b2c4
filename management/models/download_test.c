/* management/models/download_test.c - a download ends soon when the server stops. */
#include "management/models/download.h"

#include <fcntl.h>
#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/time/clock.h"

#define SILENT_MS 20000 /* how long a resolver may wait for name servers that do not answer */

static atomic_bool stopping, asked, over, answered;

/* Takes the place of the C library's function: the server stops while the name server is silent. */
int
getaddrinfo(const char *restrict node, const char *restrict service,
            const struct addrinfo *restrict hints, struct addrinfo **restrict out)
{
    const uint64_t until_ms = cn_now_ms() + SILENT_MS;

    (void)node, (void)service, (void)hints, (void)out;
    if (!atomic_load(&asked))
        return EAI_AGAIN; /* what libcurl's libraries look up when they are set up */
    atomic_store(&stopping, true);
    while (!atomic_load(&over) && cn_now_ms() < until_ms)
        usleep(1000);
    atomic_store(&answered, true);
    return EAI_AGAIN;
}

static void
the_stop_of_the_server_ends_a_look_up(void **state)
{
    struct cn_download download = {.url = "http://models.example/m.mar",
                                   .max_bytes = 1000,
                                   .timeout_ms = 60000,
                                   .stopping = &stopping};
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    struct cn_url_rules *rules;
    struct cn_error err;
    uint64_t begun_ms;

    (void)state;
    assert_int_equal(cn_url_rules_create("http://models[.]example/.*", &rules, &err), 0);
    download.rules = rules;
    cn_download_begin(NULL);
    atomic_store(&asked, true);
    begun_ms = cn_now_ms();
    assert_int_equal(cn_download_into(&download, fd, &err), CN_E_DRAINING);
    assert_true(cn_now_ms() - begun_ms < SILENT_MS / 2);
    atomic_store(&over, true);
    while (!atomic_load(&answered)) /* libcurl's thread is to end, too */
        usleep(1000);
    cn_url_rules_destroy(rules);
    close(fd);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stop_of_the_server_ends_a_look_up),
    };

    return cmocka_run_group_tests_name("management.download", tests, NULL, NULL);
}
