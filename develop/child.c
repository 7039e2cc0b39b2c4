/* develop/child.c - programs of Continuo as children: the archiver, and a server in a temporary
 * folder. One thread, so that fork is safe.
 *
 * The server has a folder of its own under $TMPDIR. Where the caller gives no address, it listens
 * there, on a socket such as /tmp/continuo-dev-Xa81bQ/i.sock, so a test never meets another
 * server's ports. It is told to end when its parent dies (PR_SET_PDEATHSIG), however that happens.
 * The folder has the packed models and the states, and is removed at the end. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/system/program_path.h"
#include "develop/develop.h"

#define START_TRIES 600 /* of 100 ms: a server on a busy machine starts within a minute */

/* In the child: becomes the program beside this one, or argv[0] itself without one. */
_Noreturn static void
become(const char *program, const char *const *words)
{
    char *const *argv = (char *const *)(uintptr_t)words;
    char path[PATH_MAX];
    struct cn_error err;

    if (!program)
        execv(argv[0], argv);
    else if (cn_program_path(program, path, sizeof path, &err) == 0)
        execv(path, argv);
    fprintf(stderr, "continuo: error: cannot start %s: %s\n", program ? program : argv[0],
            strerror(errno));
    _exit(127);
}

static void
redirect(const char *path, int fd)
{
    int to = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    if (to >= 0)
        dup2(to, fd);
}

int
cn_develop_run(const char *program, const char *const *argv, bool quiet)
{
    int status = 0;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        if (quiet)
            redirect("/dev/null", STDOUT_FILENO);
        become(program, argv);
    }
    if (pid < 0)
        return 127;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* --- the server --- */

static void
run_server(const struct cn_develop_server *server, const char *log, pid_t parent)
{
    char state[PATH_MAX + 16];
    const char *const argv[] = {
        "continuo", "--model-store", server->store, "--state-dir", state, "--inference-address",
        server->inference, "--management-address", server->management, "--metrics-address",
        server->metrics, "--grpc-inference-address", "none", "--grpc-management-address", "none",
        /* On a terminal only what is wrong is worth a line. */
        log || getenv("CONTINUO_LOG_LEVEL") ? NULL : "--log-level=warn", NULL};

    snprintf(state, sizeof state, "%s/state", server->home);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    setpgid(0, 0); /* Ctrl-C ends this process, which then stops the server */
    if (log) {
        redirect(log, STDOUT_FILENO);
        redirect(log, STDERR_FILENO);
    }
    become("continuo", argv);
}

bool
cn_develop_server_ended(struct cn_develop_server *server)
{
    if (server->pid > 0 && waitpid(server->pid, NULL, WNOHANG) == server->pid)
        server->pid = 0;
    return server->pid <= 0;
}

int
cn_develop_manage(struct cn_develop_server *server, const char *method, const char *path,
                  struct cn_str body, struct cn_buf *answer, struct cn_error *err)
{
    struct cn_ctl_call call = {
        .method = method, .path = path, .body = body, .max_bytes = 64u << 20, .patient = true};

    char *words;
    int rc = cn_ctl_http_call(server->http, server->management, &call, answer, err);

    /* The author knows of no server, so the message begins with the server's own words. */
    if (rc && (words = strstr(err->message, " answered with status ")) &&
        (words = strstr(words, ": ")))
        memmove(err->message, words + 2, strlen(words + 2) + 1);
    return rc;
}

static int
wait_until_it_answers(struct cn_develop_server *server, struct cn_error *err)
{
    struct cn_buf answer;
    int rc = -1;

    cn_buf_init(&answer, 0);
    for (int i = 0; rc != 0 && i < START_TRIES && !cn_develop_server_ended(server); i++) {
        rc = cn_develop_manage(server, "GET", "/models", (struct cn_str){NULL, 0}, &answer, err);
        if (rc)
            poll(NULL, 0, 100);
    }
    cn_buf_fini(&answer);
    if (rc == 0)
        return 0;
    return cn_fail(err, CN_E_UNAVAILABLE, "the server did not start");
}

static void
set_address(char out[PATH_MAX], const char *given, const char *home, const char *name)
{
    if (given)
        snprintf(out, PATH_MAX, "%s", given);
    else
        snprintf(out, PATH_MAX, "unix:%.3000s/%s.sock", home, name);
}

int
cn_develop_server_start(struct cn_develop_server *server, const char *inference,
                        const char *management, const char *metrics, const char *log,
                        struct cn_error *err)
{
    const char *tmp = getenv("TMPDIR");
    pid_t parent = getpid();
    int rc;

    memset(server, 0, sizeof *server);
    snprintf(server->home, sizeof server->home, "%.80s/continuo-dev-XXXXXX",
             tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(server->home))
        return cn_fail_sys(err, CN_E_IO, errno, "cannot make a folder like %s", server->home);
    snprintf(server->store, sizeof server->store, "%.3000s/store", server->home);
    mkdir(server->store, 0700);
    set_address(server->inference, inference, server->home, "i");
    set_address(server->management, management, server->home, "m");
    set_address(server->metrics, metrics, server->home, "x");
    server->http = cn_ctl_http_create();
    fflush(NULL);
    server->pid = fork();
    if (server->pid == 0)
        run_server(server, log, parent);
    rc = server->pid < 0 ? cn_fail_sys(err, CN_E_IO, errno, "cannot start a process")
                         : wait_until_it_answers(server, err);
    if (rc)
        cn_develop_server_stop(server);
    return rc;
}

void
cn_develop_server_stop(struct cn_develop_server *server)
{
    if (server->pid > 0) {
        kill(server->pid, SIGTERM);
        while (waitpid(server->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        server->pid = 0;
    }
    cn_ctl_http_destroy(server->http);
    server->http = NULL;
    if (server->home[0]) {
        const char *const argv[] = {"/bin/rm", "-rf", server->home, NULL};

        cn_develop_run(NULL, argv, true);
        server->home[0] = '\0';
    }
}

int
cn_develop_register(struct cn_develop_server *server, const char *name, unsigned number,
                    struct cn_error *err)
{
    struct cn_buf answer;
    char path[400];
    int rc;

    cn_buf_init(&answer, 0);
    snprintf(path, sizeof path,
             "/models?url=%.100s-%u.mar&model_name=%.100s&initial_workers=1&synchronous=true", name,
             number, name);
    rc = cn_develop_manage(server, "POST", path, (struct cn_str){NULL, 0}, &answer, err);
    cn_buf_fini(&answer);
    return rc;
}
