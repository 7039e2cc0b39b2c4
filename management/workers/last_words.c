/* management/workers/last_words.c - what a worker's process prints, and a sentence that says how it
 * ended. On its queue's loop.
 *
 * A worker prints two kinds of lines. Lines of its own log (level_of() recognises them) are written
 * into the server's log as events, with the model and the worker. Everything else, for example what
 * a handler prints, becomes an event worker_stderr. The last lines are kept (stderr_tail.h).
 *
 * When the process ends, compose_last_words() makes one sentence of how it ended and of the last
 * line that it printed. Clients get this sentence in the errors of their steps, and operators in
 * the description of the model.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log/log.h"
#include "management/state/state_dir.h"
#include "management/workers/supervisor_priv.h"

#define READ_ROUNDS 4  /* a handler that prints much gets a part of a turn, not all of it */
#define LAST_ROUNDS 32 /* twice what a pipe holds; a child of the process may print for ever */

/* Is it a line of the worker's own log? Then its level is returned, and `event` is its text from
 * "event=" on; otherwise -1. */
static int
level_of(const char *line, const char **event)
{
    static const char who[] = " worker event=";
    const char *word = line + sizeof("2026-11-21T04:36:32.123Z") - 1;
    char level[8];
    size_t len;

    if (strnlen(line, 25) < 25 || line[10] != 'T' || word[-1] != 'Z' || word[0] != ' ')
        return -1;
    len = strcspn(++word, " ");
    if (len >= sizeof(level) || strncmp(word + len, who, sizeof(who) - 1) != 0)
        return -1;
    memcpy(level, word, len);
    level[len] = '\0';
    *event = word + len + sizeof(" worker ") - 1;
    return cn_log_level_parse(level);
}

static const char *
skip_member(const char *text, const char *key)
{
    size_t len = strlen(key);

    return strncmp(text, key, len) == 0 ? text + len + strcspn(text + len, " ") : text;
}

static bool
is_event(const char *event, size_t len, const char *name)
{
    return len == strlen(name) && memcmp(event, name, len) == 0;
}

/* May the event be written? The number of errors of steps is bounded. The event of an error is
 * followed by further events if its traceback is long. They are written if the error was. */
static bool
is_wanted(struct cn_worker_process *worker, const char *event, size_t len)
{
    if (is_event(event, len, "event=handler_error"))
        return worker->error_written = cn_error_lines_take(worker->spec->error_lines);
    return worker->error_written || !is_event(event, len, "event=handler_traceback");
}

/* Writes an event of the worker as an event of the server, which knows which worker it was. */
static void
relay(struct cn_worker_process *worker, int level, const char *event)
{
    const size_t len = strcspn(event, " ");
    const char *rest = skip_member(skip_member(event + len, " model="), " version=");

    if (!is_wanted(worker, event, len))
        return;
    cn_log_model((enum cn_log_level)level, "%.*s model=%s version=%s worker=%u pid=%d%s", (int)len,
                 event, worker->spec->about->name, worker->spec->about->version, worker->index,
                 (int)worker->pid, rest);
}

static void
on_stderr_line(void *ctx, const char *line)
{
    struct cn_worker_process *worker = ctx;
    const char *event;
    char quoted[CN_TAIL_LINE_BYTES + 400];
    int level = level_of(line, &event);

    if (level >= 0) {
        relay(worker, level, event);
        return;
    }
    cn_log_model(CN_LOG_INFO, "event=worker_stderr model=%s version=%s worker=%u pid=%d line=%s",
                 worker->spec->about->name, worker->spec->about->version, worker->index,
                 (int)worker->pid, cn_log_quote(line, strlen(line), quoted, sizeof quoted));
}

/* Reads at most `rounds` times. */
static void
read_stderr(struct cn_worker_process *worker, int rounds)
{
    char bytes[4096];
    ssize_t n;

    while (rounds-- > 0) {
        n = read(worker->stderr_fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            /* The end of the pipe says nothing new: the process or the socket ends, too. */
            if (n == 0)
                cn_loop_unwatch(worker->spec->loop, &worker->stderr_watch);
            return;
        }
        cn_stderr_tail_add(&worker->tail, bytes, (size_t)n, on_stderr_line, worker);
    }
}

void
cn_worker_on_stderr(struct cn_watch *watch, uint32_t events)
{
    struct cn_worker_process *worker =
        cn_container_of(watch, struct cn_worker_process, stderr_watch);

    (void)events;
    read_stderr(worker, READ_ROUNDS);
}

/* Returns the last line in a form for people. If it is an event, that is only its reason. */
static const char *
last_line(const struct cn_worker_process *worker, char *out, size_t out_bytes)
{
    static const char *const keys[] = {" error=\"", " reason=\"", " text=\""};
    const char *line = cn_stderr_tail_last(&worker->tail), *event, *at;

    if (level_of(line, &event) < 0)
        return line;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if ((at = strstr(event, keys[i]))) {
            cn_log_unquote(at + strlen(keys[i]), out, out_bytes);
            out[strcspn(out, "\n")] = '\0';
            return out;
        }
    }
    return event;
}

/* "worker 2 (pid 123) of counter/1.0 was killed by signal 11 (SIGSEGV); last stderr: ..." */
static void
compose_last_words(struct cn_worker_process *worker)
{
    bool killed = worker->exit.by_signal || worker->killed_for[0];
    char how[CN_ERROR_MESSAGE_MAX + 64], name[32], text[300];
    const char *line = last_line(worker, text, sizeof text);

    if (worker->load_error[0])
        snprintf(how, sizeof how, "could not load the model: %s", worker->load_error);
    else if (worker->killed_for[0])
        snprintf(how, sizeof how, "was killed by the server: %s", worker->killed_for);
    else if (worker->exit.by_signal && worker->exit.number == SIGKILL &&
             worker->spec->about->bounds.memory_bytes && cn_bounds_took_too_much(worker->id))
        snprintf(how, sizeof how,
                 "was killed by the system, because it took more memory than %llu bytes "
                 "(--worker-memory, handler.limits.workerBytes)",
                 (unsigned long long)worker->spec->about->bounds.memory_bytes);
    else
        cn_exit_describe(&worker->exit, how, sizeof how);
    if (strstr(how, line))
        line = ""; /* it told the server the same */
    snprintf(worker->last_exit, sizeof worker->last_exit,
             "%s (pid %d) of %.128s/%.128s %.400s%s%.200s", cn_worker_name(worker, name),
             (int)worker->pid, worker->spec->about->name, worker->spec->about->version, how,
             !line[0] ? ""
             : killed ? "; last stderr: "
                      : ": ",
             line);
}

static void
log_end(struct cn_worker_process *worker)
{
    bool expected = worker->state == CN_WORKER_STOPPING;
    char quoted[1024], tail[CN_TAIL_BYTES], tail_quoted[CN_TAIL_BYTES / 2];

    cn_log(expected && !worker->exit.by_signal ? CN_LOG_INFO : CN_LOG_WARN,
           "event=%s_ended model=%s version=%s worker=%u pid=%d expected=%s cause=%s",
           cn_worker_is_zygote(worker) ? "zygote" : "worker", worker->spec->about->name,
           worker->spec->about->version, worker->index, (int)worker->pid, expected ? "yes" : "no",
           cn_log_quote(worker->last_exit, strlen(worker->last_exit), quoted, sizeof quoted));
    if (expected || !cn_log_enabled(CN_LOG_DEBUG))
        return;
    cn_stderr_tail_join(&worker->tail, CN_TAIL_LINES, tail, sizeof tail);
    cn_log(CN_LOG_DEBUG, "event=worker_last_lines model=%s worker=%u pid=%d lines=%s",
           worker->spec->about->name, worker->index, (int)worker->pid,
           cn_log_quote(tail, strlen(tail), tail_quoted, sizeof tail_quoted));
}

/* Did the process crash? LMDB on a damaged page is one cause, so the next worker checks the store
 * before it opens it. */
static bool
crashed(const struct cn_exit *ended)
{
    return ended->by_signal &&
           (ended->number == SIGSEGV || ended->number == SIGBUS || ended->number == SIGABRT);
}

void
cn_worker_note_end(struct cn_worker_process *worker)
{
    if (worker->stderr_watch.fd >= 0)
        read_stderr(worker, LAST_ROUNDS);
    cn_stderr_tail_end(&worker->tail, on_stderr_line, worker);
    compose_last_words(worker);
    log_end(worker);
    if (crashed(&worker->exit) && worker->spec->store_dir && worker->spec->store_dir[0])
        cn_state_dir_recheck_store(worker->spec->store_dir);
}
