/* develop/demo.c - continuo demo: shows in a second what the server is for. One thread.
 *
 * It starts a server in a temporary folder and gives it a model that adds up numbers. After three
 * steps of a sequence it kills the model's worker as kill -9 does, and sends one more step. The
 * worker that takes its place must know all steps before it. Every line says what happens, so the
 * output is the first page that a newcomer reads. Nothing is left behind: the server, its sockets
 * and its states are in the folder, which the end removes. */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/time/clock.h"
#include "develop/develop.h"

#define MODEL "counter"
#define SEQUENCE "my-first-sequence"
#define ANSWER_MAX_BYTES (1u << 20)

extern const unsigned char cn_template_demo_handler[], cn_template_config[];
extern const size_t cn_template_demo_handler_bytes, cn_template_config_bytes;

static const int numbers[] = {4, 8, 30};
#define LAST_NUMBER 100

struct demo {
    struct cn_develop_server server;
    struct cn_project project;
    uint64_t began_us;
    long long sum; /* of all numbers that were sent: the answer that is right */
};

static volatile sig_atomic_t stopping;

static void
on_signal(int signal)
{
    (void)signal;
    stopping = 1;
}

/* --- the model --- */

static int
write_model(const struct cn_develop_server *server, struct cn_project *out, struct cn_error *err)
{
    const struct {
        const char *file;
        struct cn_str text;
    } files[] = {
        {"handler.lua", {(const char *)cn_template_demo_handler, cn_template_demo_handler_bytes}},
        {"model-config.yaml", {(const char *)cn_template_config, cn_template_config_bytes}}};
    char dir[PATH_MAX], path[PATH_MAX + 32];
    int rc = 0;

    snprintf(dir, sizeof dir, "%.3000s/" MODEL, server->home);
    if (mkdir(dir, 0700) < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot make the folder %.300s", dir);
    for (size_t i = 0; rc == 0 && i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i].file);
        rc = cn_develop_write_file(path, files[i].text, false, err);
    }
    return rc ? rc : cn_project_open(dir, out, err);
}

/* Prints the handler, each line indented. */
static void
show_model(void)
{
    const char *at = (const char *)cn_template_demo_handler;
    const char *end = at + cn_template_demo_handler_bytes;

    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        const int len = (int)((line_end ? line_end : end) - at);

        cn_develop_say(false, len ? "    %.*s" : "%.*s", len, at);
        at += len + 1;
    }
}

/* --- the steps --- */

/* Sends a number and prints the answer, which must be the sum of all numbers so far. */
static int
send_number(struct demo *demo, int number, struct cn_error *err)
{
    const char *headers[] = {"ts-request-sequence-id: " SEQUENCE};
    const uint64_t began = cn_now_us();
    char body[16], expected[32];
    struct cn_ctl_call call = {.method = "POST",
                               .path = "/predictions/" MODEL,
                               .max_bytes = ANSWER_MAX_BYTES,
                               .patient = true,
                               .headers = headers,
                               .n_headers = 1};
    struct cn_buf answer;
    int rc;

    if (stopping)
        return cn_fail(err, CN_E_UNAVAILABLE, "a signal has ended the demo");
    snprintf(body, sizeof body, "%d", number);
    call.body = cn_str_from(body);
    demo->sum += number;
    snprintf(expected, sizeof expected, "%lld", demo->sum);
    cn_buf_init(&answer, 0);
    rc = cn_ctl_http_call(demo->server.http, demo->server.inference, &call, &answer, err);
    if (rc == 0)
        cn_develop_say(false, "   sent %3d, and the answer is %3.*s   (after %.1f ms)", number,
                       (int)answer.len, answer.len ? answer.data : "",
                       (double)(cn_now_us() - began) / 1000);
    if (rc == 0 && !cn_str_eq(cn_buf_str(&answer), cn_str_from(expected)))
        rc = cn_fail(err, CN_E_HANDLER_FAILED, "the answer must be %s; please report this",
                     expected);
    cn_buf_fini(&answer);
    return rc;
}

/* --- the kill --- */

/* Writes the process id of the model's worker to *out; CN_E_UNAVAILABLE if it has none. */
static int
find_worker(struct demo *demo, pid_t *out, struct cn_error *err)
{
    json_t *versions = NULL;
    struct cn_buf answer;
    int rc;

    *out = 0;
    cn_buf_init(&answer, 0);
    rc = cn_develop_manage(&demo->server, "GET", "/models/" MODEL, (struct cn_str){NULL, 0},
                           &answer, err);
    if (rc == 0) {
        versions = json_loadb(answer.data, answer.len, 0, NULL);
        *out = (pid_t)json_integer_value(json_object_get(
            json_array_get(json_object_get(json_array_get(versions, 0), "workers"), 0), "pid"));
        if (*out <= 0)
            rc = cn_fail(err, CN_E_UNAVAILABLE,
                         "the server names no worker of the model; please report this");
    }
    json_decref(versions);
    cn_buf_fini(&answer);
    return rc;
}

/* Kills the worker without a warning, and sends the next number to the one that replaces it. */
static int
survive_a_kill(struct demo *demo, struct cn_error *err)
{
    pid_t before, after;
    int rc = find_worker(demo, &before, err);

    if (rc)
        return rc;
    cn_develop_say(false, "\n3. The process in which the model runs is killed: kill -9 %d",
                   (int)before);
    if (kill(before, SIGKILL) < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot kill process %d", (int)before);
    cn_develop_say(false, "\n4. The sequence goes on as if nothing had happened:");
    if ((rc = send_number(demo, LAST_NUMBER, err)) != 0 ||
        (rc = find_worker(demo, &after, err)) != 0)
        return rc;
    if (after == before)
        return cn_fail(err, CN_E_UNAVAILABLE,
                       "process %d still runs the model after kill -9; please report this",
                       (int)before);
    cn_develop_say(
        false,
        "\nProcess %d has taken over. It has read the state that was committed before the "
        "last answer\nleft, so the sum has all four numbers.",
        (int)after);
    return 0;
}

static int
show(struct demo *demo, struct cn_error *err)
{
    int rc = write_model(&demo->server, &demo->project, err);

    if (rc == 0)
        rc = cn_project_pack(&demo->project, demo->server.store, 1, err);
    if (rc == 0)
        rc = cn_develop_register(&demo->server, MODEL, 1, err);
    if (rc)
        return rc;
    cn_develop_say(false,
                   "\n1. A server has started in %s, and it has loaded a model.\n"
                   "   The model adds up the numbers of each sequence. All of its code is this:\n",
                   demo->server.home);
    show_model();
    cn_develop_say(false, "\n2. A client sends three steps of one sequence:");
    for (size_t i = 0; rc == 0 && i < sizeof numbers / sizeof numbers[0]; i++)
        rc = send_number(demo, numbers[i], err);
    return rc ? rc : survive_a_kill(demo, err);
}

/* --- the command --- */

static void
print_file(const char *path)
{
    FILE *file = fopen(path, "re");
    char line[4096];

    while (file && fgets(line, sizeof line, file))
        fputs(line, stderr);
    if (file)
        fclose(file);
}

/* Runs the demo with the server's log in a file, which is shown if something is wrong. */
static int
run(struct demo *demo, struct cn_error *err)
{
    char log[64] = "/tmp/continuo-demo-XXXXXX";
    int fd = mkstemp(log), rc;

    if (fd < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot make the file %s", log);
    close(fd);
    rc = cn_develop_server_start(&demo->server, NULL, NULL, NULL, log, err);
    if (rc == 0) {
        rc = show(demo, err);
        cn_develop_server_stop(&demo->server);
    }
    if (rc && !stopping)
        print_file(log);
    unlink(log);
    return rc;
}

int
cn_develop_demo(int argc, char **argv)
{
    const struct sigaction action = {.sa_handler = on_signal};
    static struct demo demo;
    struct cn_error err;

    (void)argv;
    if (argc > 0)
        return fputs("usage: continuo demo\n", stderr), CN_DEVELOP_USAGE;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    demo.began_us = cn_now_us();
    if (run(&demo, &err)) {
        cn_develop_error("%s", err.message);
        return CN_DEVELOP_FAILED;
    }
    cn_develop_say(true,
                   "\nThe server has ended, and its folder is removed. The demo took %.1f s.\n"
                   "next: continuo new lua NAME makes a model of your own; continuo test NAME "
                   "tests it, and continuo dev NAME serves it",
                   (double)(cn_now_us() - demo.began_us) / 1e6);
    return CN_DEVELOP_FINE;
}
