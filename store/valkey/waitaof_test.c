/* store/valkey/waitaof_test.c - durability power with WAITAOF, against a stand-in for a server that
 * has it: redis-server 7.0 does not. The stand-in answers each command by its name. */
#include "store/shared_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "core/memory/buf.h"
#include "store/record/record.h"
#include "store/valkey/test_store.h"
#include "store/valkey/valkey_priv.h"

static struct {
    int listener;
    const char *version;
    atomic_bool on_disk;  /* what WAITAOF says */
    atomic_int n_waitaof; /* how often it was asked */
} stand_in;

static void
say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static void
answer(int fd, const char *command)
{
    char info[200], reply[260];

    if (strcmp(command, "INFO") == 0) {
        snprintf(info, sizeof(info),
                 "redis_version:%s\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n"
                 "aof_enabled:1\r\nloading:0\r\n",
                 stand_in.version);
        snprintf(reply, sizeof(reply), "$%zu\r\n%s\r\n", strlen(info), info);
        say(fd, reply);
    } else if (strcmp(command, "CONFIG") == 0) {
        say(fd, "*2\r\n$11\r\nappendfsync\r\n$8\r\neverysec\r\n");
    } else if (strcmp(command, "SCRIPT") == 0) {
        say(fd, "$40\r\n0123456789012345678901234567890123456789\r\n");
    } else if (strcmp(command, "EVALSHA") == 0) {
        say(fd, ":1\r\n");
    } else if (strcmp(command, "WAITAOF") == 0) {
        atomic_fetch_add(&stand_in.n_waitaof, 1);
        say(fd, atomic_load(&stand_in.on_disk) ? "*2\r\n:1\r\n:0\r\n" : "*2\r\n:0\r\n:0\r\n");
    } else {
        say(fd, "$-1\r\n");
    }
}

/* Reads commands and answers them until the client is gone. */
static void
serve(int fd)
{
    FILE *in = fdopen(fd, "r");
    char line[64], word[65536], command[64];
    int words, len;

    while (fgets(line, sizeof(line), in) && sscanf(line, "*%d", &words) == 1) {
        for (int i = 0; i < words; i++) {
            if (!fgets(line, sizeof(line), in) || sscanf(line, "$%d", &len) != 1 ||
                len + 2 > (int)sizeof(word) || fread(word, 1, (size_t)len + 2, in) == 0)
                break;
            if (i == 0)
                snprintf(command, sizeof(command), "%.*s", len, word);
        }
        answer(fd, command);
    }
    fclose(in);
}

static void *
stand_in_main(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = accept(stand_in.listener, NULL, NULL);

        if (fd < 0)
            return NULL;
        serve(fd);
    }
}

static struct cn_shared_options
stand_in_begin(pthread_t *thread, struct cn_shared_host *host, const char *version)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    struct cn_shared_options options;

    stand_in.version = version;
    atomic_store(&stand_in.on_disk, true);
    atomic_store(&stand_in.n_waitaof, 0);
    stand_in.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(stand_in.listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(getsockname(stand_in.listener, (struct sockaddr *)&at, &len), 0);
    assert_int_equal(listen(stand_in.listener, 4), 0);
    assert_int_equal(pthread_create(thread, NULL, stand_in_main, NULL), 0);
    *host = (struct cn_shared_host){"127.0.0.1", ntohs(at.sin_port)};
    options = test_store_options(host, 1, 5000);
    options.power = true;
    return options;
}

static void
stand_in_end(pthread_t thread)
{
    shutdown(stand_in.listener, SHUT_RDWR);
    close(stand_in.listener);
    pthread_join(thread, NULL);
}

static enum cn_store_outcome
write_one(struct cn_store *store, struct cn_error *err)
{
    const struct cn_record record = {
        .flags = CN_RECORD_HAS_STATE, .generation = 7, .step = 1, .state = CN_STR("x")};
    const struct cn_store_seen seen = {.what = CN_SEEN_NOTHING};
    enum cn_store_outcome outcome = CN_STORE_FAILED;
    struct cn_buf bytes;

    cn_buf_init(&bytes, 0);
    assert_int_equal(cn_record_encode(&record, &bytes, NULL), 0);
    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    cn_store_expect(store, &seen, &outcome);
    assert_int_equal(cn_store_put(store, CN_STR("s"), cn_buf_str(&bytes), NULL), 0);
    cn_store_commit(store, err);
    cn_buf_fini(&bytes);
    return outcome;
}

/* A step counts only when the server says that it is on its disk. */
static void
a_step_waits_for_the_disk(void **state)
{
    struct cn_shared_host host;
    struct cn_error err = {0};
    struct cn_store *store;
    pthread_t thread;
    struct cn_shared_options options = stand_in_begin(&thread, &host, "7.2.4");
    int before;

    (void)state;
    if (cn_shared_store_open(&options, &store, &err) != 0)
        fail_msg("%s", err.message);
    before = atomic_load(&stand_in.n_waitaof);
    assert_int_equal(write_one(store, &err), CN_STORE_WRITTEN);
    assert_int_equal(atomic_load(&stand_in.n_waitaof), before + 1);
    atomic_store(&stand_in.on_disk, false);
    assert_int_equal(write_one(store, &err), CN_STORE_FAILED);
    assert_int_equal(err.code, CN_E_STORE_UNREACHABLE);
    assert_non_null(strstr(err.message, "on its disk"));
    cn_store_close(store);
    stand_in_end(thread);
}

/* An older server cannot say it, so it must sync each write by itself. */
static void
an_older_server_must_sync_each_write(void **state)
{
    struct cn_shared_host host;
    struct cn_error err = {0};
    struct cn_store *store;
    pthread_t thread;
    struct cn_shared_options options = stand_in_begin(&thread, &host, "7.0.15");

    (void)state;
    assert_int_equal(cn_shared_store_open(&options, &store, &err), CN_E_STATE_STORE);
    assert_non_null(strstr(err.message, "appendfsync is everysec"));
    stand_in_end(thread);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_waits_for_the_disk),
        cmocka_unit_test(an_older_server_must_sync_each_write),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
