/* store/link/test_server.h - a redis-server of a test's own, on a free port of the loopback. */
#ifndef CN_STORE_LINK_TEST_SERVER_H
#define CN_STORE_LINK_TEST_SERVER_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/test_support.h"

#define TEST_FIRST_PORT 15000
#define TEST_PORTS 17000

struct test_server {
    char dir[64], port[8];
    pid_t pid;
};

/* Skips the test if its set-up has started no redis-server, because there is none. */
static inline void
test_needs_server(bool started)
{
    if (!started) {
        print_message("skipped: there is no redis-server (scripts/setup.sh installs it)\n");
        skip(); /* setup.sh installs it */
    }
}

/* A port of the loopback on which nobody listens, and that this process has not got before. It lies
 * below the range from which the system takes the ports of outgoing connections. So no connection
 * of a client takes it before the server does, or while the server is started again. */
static inline int
test_free_port(void)
{
    static bool chosen[TEST_PORTS];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    for (;;) {
        uint16_t i;
        int fd, rc;

        assert_int_equal(getrandom(&i, sizeof(i), 0), sizeof(i)); /* others test beside this */
        i %= TEST_PORTS;
        if (chosen[i])
            continue;
        at.sin_port = htons((uint16_t)(TEST_FIRST_PORT + i));
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        rc = bind(fd, (struct sockaddr *)&at, sizeof(at));
        close(fd);
        chosen[i] = rc == 0;
        if (rc == 0)
            return TEST_FIRST_PORT + i;
    }
}

/* Waits until somebody listens. */
static inline void
test_server_wait(const struct test_server *server)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)atoi(server->port))};

    for (int i = 0; i < 2000; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int rc = connect(fd, (struct sockaddr *)&at, sizeof(at));

        close(fd);
        if (rc == 0)
            return;
        usleep(5000);
    }
    fail_msg("redis-server does not listen on port %s", server->port);
}

/* Starts the server again on its port, with further settings, up to 20 words and NULL. */
static inline void
test_server_begin_with(struct test_server *server, const char *const *settings)
{
    const char *argv[32] = {"redis-server", "--port",    server->port, "--bind", "127.0.0.1",
                            "--dir",        server->dir, "--save",     ""};
    int n = 9;

    while (*settings)
        argv[n++] = *settings++;
    if ((server->pid = fork()) == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no server behind */
        int null = open("/dev/null", O_RDWR);

        dup2(null, 1);
        dup2(null, 2);
        execvp("redis-server", (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    test_server_wait(server);
}

static inline void
test_server_begin(struct test_server *server, const char *key, const char *value)
{
    const char *const settings[] = {key, value, NULL};

    test_server_begin_with(server, settings);
}

static inline void
test_server_end(struct test_server *server)
{
    if (server->pid > 0) {
        kill(server->pid, SIGKILL);
        waitpid(server->pid, NULL, 0);
    }
    server->pid = 0;
}

static inline bool
test_server_exists(void)
{
    return system("command -v redis-server >/dev/null 2>&1") == 0;
}

static inline void
test_server_start(struct test_server *server, const char *key, const char *value)
{
    test_dir_make(server->dir);
    snprintf(server->port, sizeof(server->port), "%d", test_free_port());
    test_server_begin(server, key, value);
}

static inline void
test_server_stop(struct test_server *server)
{
    test_server_end(server);
    test_dir_remove(server->dir);
}

/* Sends one command, such as "SCRIPT FLUSH", and drops the answer. */
static inline void
test_server_say(const struct test_server *server, const char *command)
{
    char line[400];

    snprintf(line, sizeof(line), "redis-cli -p %s %s >/dev/null 2>&1", server->port, command);
    assert_int_equal(system(line), 0);
}

#endif
