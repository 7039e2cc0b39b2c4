/* management/environments/installer.c - runs python/environment.py with a model's interpreter. Loop
 * 0.
 *
 * Three descriptors are watched: the pidfd, the socket with the lines of environment.py, and the
 * pipe with what pip prints. Only the end of the process ends the installer: a grandchild may hold
 * the pipe for ever. At that moment the whole process group is killed, before the leader is reaped,
 * because its number could belong to somebody else after that.
 *
 * When the server dies, the installer dies with it: environment.py reads the socket, and kills its
 * own group at its end.
 */
#include "management/environments/installer.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "management/workers/spawn.h"
#include "management/workers/stderr_tail.h"

#define SCRIPT "environment.py"
#define LINE_BYTES 1024 /* the lines of environment.py have at most 700 bytes */
#define LABEL_BYTES 300
#define SHOWN_LINES 4  /* this many last lines of pip are shown in an error */
#define READ_ROUNDS 8  /* reads of pip's output in one turn of the loop */
#define LAST_ROUNDS 32 /* twice what a pipe holds */

struct cn_installer {
    struct cn_loop *loop;
    struct cn_spawned process;
    struct cn_watch exit_watch, socket_watch, print_watch;
    struct cn_timer timer;
    struct cn_deferred finish;
    struct cn_stderr_tail tail;
    struct cn_exit exit;
    uint64_t timeout_ms;
    bool overdue, has_failed;
    char line[LINE_BYTES]; /* the line from the socket that has not ended yet */
    size_t line_len;
    char step[LINE_BYTES], identity[LINE_BYTES], package[LINE_BYTES], failure[LINE_BYTES];
    char label[LABEL_BYTES];
    void (*on_done)(void *ctx, const struct cn_error *err);
    void *ctx;
};

/* --- what it says */

static void
copy_text(char out[LINE_BYTES], const char *text)
{
    snprintf(out, LINE_BYTES, "%s", text);
    for (; *out; out++)
        if ((unsigned char)*out < 0x20 || *out == 0x7f)
            *out = ' ';
}

static const char *
after(const char *line, const char *word)
{
    const size_t len = strlen(word);

    return strncmp(line, word, len) == 0 && line[len] == ' ' ? line + len + 1 : NULL;
}

/* One line of environment.py. Words that are not known are ignored. */
static void
take_line(struct cn_installer *installer, char *line)
{
    const char *text;
    char *tab;

    if ((text = after(line, "step"))) {
        copy_text(installer->step, text);
    } else if ((text = after(line, "identity"))) {
        copy_text(installer->identity, text);
    } else if ((text = after(line, "failed"))) {
        installer->has_failed = true;
        tab = strchr(text, '\t');
        if (tab)
            *tab = '\0';
        copy_text(installer->package, tab ? text : "");
        copy_text(installer->failure, tab ? tab + 1 : text);
    }
}

static void
take_bytes(struct cn_installer *installer, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '\n') {
            installer->line[installer->line_len] = '\0';
            take_line(installer, installer->line);
            installer->line_len = 0;
        } else if (installer->line_len < sizeof installer->line - 1) {
            installer->line[installer->line_len++] = bytes[i] ? bytes[i] : ' ';
        }
    }
}

static void
read_socket(struct cn_installer *installer, int rounds)
{
    char bytes[4096];
    ssize_t n = 1;

    while (n > 0 && rounds-- > 0) {
        n = read(installer->process.socket_fd, bytes, sizeof bytes);
        if (n > 0)
            take_bytes(installer, bytes, (size_t)n);
    }
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        cn_loop_unwatch(installer->loop, &installer->socket_watch);
}

static void
on_printed_line(void *ctx, const char *line)
{
    const struct cn_installer *installer = ctx;
    char quoted[CN_TAIL_LINE_BYTES + 400];

    cn_log_model(CN_LOG_INFO, "event=install_output model=%s pid=%d line=%s", installer->label,
                 (int)installer->process.pid,
                 cn_log_quote(line, strlen(line), quoted, sizeof quoted));
}

static void
read_printed(struct cn_installer *installer, int rounds)
{
    char bytes[4096];
    ssize_t n = 1;

    while (n > 0 && rounds-- > 0) {
        n = read(installer->process.stderr_fd, bytes, sizeof bytes);
        if (n > 0)
            cn_stderr_tail_add(&installer->tail, bytes, (size_t)n, on_printed_line, installer);
    }
    if (n == 0)
        cn_loop_unwatch(installer->loop, &installer->print_watch);
}

static void
on_socket(struct cn_watch *watch, uint32_t events)
{
    (void)events;
    read_socket(cn_container_of(watch, struct cn_installer, socket_watch), READ_ROUNDS);
}

static void
on_printed(struct cn_watch *watch, uint32_t events)
{
    (void)events;
    read_printed(cn_container_of(watch, struct cn_installer, print_watch), READ_ROUNDS);
}

/* --- its end */

static int
describe_failure(const struct cn_installer *installer, struct cn_error *err)
{
    char how[64], lines[300];

    cn_stderr_tail_join(&installer->tail, SHOWN_LINES, lines, sizeof lines);
    if (installer->overdue)
        return cn_fail(err, CN_E_INSTALL_FAILED,
                       "the installer did not end within %llu ms (--install-timeout); it was at: "
                       "%.200s",
                       (unsigned long long)installer->timeout_ms,
                       installer->step[0] ? installer->step : "its start");
    if (!installer->has_failed) {
        cn_exit_describe(&installer->exit, how, sizeof how);
        return cn_fail(err, CN_E_INSTALL_FAILED, "the installer %s%s%s", how,
                       lines[0] ? "; its last lines: " : "", lines);
    }
    if (!installer->package[0])
        return cn_fail(err, CN_E_INSTALL_FAILED, "%.400s%s%s", installer->failure,
                       lines[0] ? "; the installer's last lines: " : "", lines);
    return cn_fail(err, CN_E_INSTALL_FAILED,
                   "the package %.100s cannot be installed: %.250s; the installer's last lines: "
                   "%s; correct the requirements file, or add the package to the folder wheels of "
                   "the archive, and register the model again",
                   installer->package, installer->failure, lines);
}

static void
release(struct cn_installer *installer)
{
    cn_timer_cancel(&installer->timer);
    cn_list_remove(&installer->finish.link);
    cn_loop_unwatch(installer->loop, &installer->exit_watch);
    cn_loop_unwatch(installer->loop, &installer->socket_watch);
    cn_loop_unwatch(installer->loop, &installer->print_watch);
    cn_spawn_close(&installer->process);
}

static void
finish(struct cn_deferred *deferred)
{
    struct cn_installer *installer = cn_container_of(deferred, struct cn_installer, finish);
    const struct cn_exit *end = &installer->exit;
    struct cn_error err = {0};

    read_socket(installer, LAST_ROUNDS);
    read_printed(installer, LAST_ROUNDS);
    cn_stderr_tail_end(&installer->tail, on_printed_line, installer);
    if (installer->overdue || installer->has_failed || end->by_signal || end->number != 0)
        describe_failure(installer, &err);
    release(installer);
    installer->on_done(installer->ctx, err.code ? &err : NULL);
}

static void
on_exit_event(struct cn_watch *watch, uint32_t events)
{
    struct cn_installer *installer = cn_container_of(watch, struct cn_installer, exit_watch);

    (void)events;
    cn_spawn_kill_group(installer->process.pid);
    if (!cn_spawn_reap(installer->process.pid_fd, &installer->exit))
        return;
    installer->process.pid = 0;
    cn_timer_cancel(&installer->timer);
    cn_loop_unwatch(installer->loop, watch);
    cn_loop_defer(installer->loop, &installer->finish);
}

static void
on_timeout(struct cn_timer *timer)
{
    struct cn_installer *installer = cn_container_of(timer, struct cn_installer, timer);

    installer->overdue = true;
    cn_spawn_kill_group(installer->process.pid);
}

/* --- its life */

static int
watch_all(struct cn_installer *installer, struct cn_error *err)
{
    struct cn_spawned *process = &installer->process;
    int rc = cn_loop_watch(installer->loop, &installer->exit_watch, process->pid_fd, EPOLLIN, err);

    if (!rc)
        rc = cn_loop_watch(installer->loop, &installer->socket_watch, process->socket_fd, EPOLLIN,
                           err);
    if (!rc)
        rc = cn_loop_watch(installer->loop, &installer->print_watch, process->stderr_fd, EPOLLIN,
                           err);
    return rc;
}

int
cn_installer_start(const struct cn_installer_spec *spec, struct cn_installer **out,
                   struct cn_error *err)
{
    struct cn_installer *installer = cn_alloc(sizeof *installer);
    char script[PATH_MAX];
    int rc;

    snprintf(script, sizeof script, "%s/" SCRIPT, spec->package);
    snprintf(installer->label, sizeof installer->label, "%s", spec->label);
    installer->loop = spec->loop;
    installer->timeout_ms = spec->timeout_ms;
    installer->on_done = spec->on_done;
    installer->ctx = spec->ctx;
    installer->exit_watch = (struct cn_watch){.fd = -1, .fn = on_exit_event};
    installer->socket_watch = (struct cn_watch){.fd = -1, .fn = on_socket};
    installer->print_watch = (struct cn_watch){.fd = -1, .fn = on_printed};
    cn_timer_init(&installer->timer, on_timeout);
    cn_list_init(&installer->finish.link);
    installer->finish.fn = finish;
    cn_stderr_tail_init(&installer->tail);
    rc = cn_spawn(&(struct cn_spawn_spec){.program = spec->python,
                                          .script = script,
                                          .label = spec->label,
                                          .words = spec->words,
                                          .installs = true,
                                          .dir = spec->dir,
                                          .lock_fd = -1},
                  &installer->process, err);
    if (!rc)
        rc = watch_all(installer, err);
    if (rc) {
        cn_installer_destroy(installer);
        return cn_fail(err, CN_E_INSTALL_FAILED, "the installer cannot be started: %s",
                       err ? err->message : "");
    }
    cn_timer_set(cn_loop_wheel(installer->loop), &installer->timer,
                 cn_loop_now_ms(installer->loop) + installer->timeout_ms);
    *out = installer;
    return 0;
}

void
cn_installer_destroy(struct cn_installer *installer)
{
    if (!installer)
        return;
    if (installer->process.pid_fd >= 0 && installer->process.pid > 0) {
        cn_spawn_kill_group(installer->process.pid);
        cn_spawn_wait(installer->process.pid_fd);
    }
    release(installer);
    cn_stderr_tail_fini(&installer->tail);
    cn_free(installer);
}

const char *
cn_installer_step(const struct cn_installer *installer)
{
    return installer->step;
}

const char *
cn_installer_identity(const struct cn_installer *installer)
{
    return installer->identity;
}

const char *
cn_installer_package(const struct cn_installer *installer)
{
    return installer->package;
}
