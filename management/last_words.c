/* management/last_words.c - what a worker's process prints, and in words how it ended. On its queue's loop. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "management/supervisor_priv.h"

#define READ_ROUNDS 4  /* a chatty handler gets its share of a turn, not all of it */
#define LAST_ROUNDS 32 /* twice what a pipe holds; a child that it left behind may print for ever */

static void
on_stderr_line(void *ctx, const char *line)
{
    struct cn_worker *worker = ctx;
    char quoted[2048];

    cn_log_model(CN_LOG_INFO, "event=worker_stderr model=%s version=%s worker=%u pid=%d line=%s",
                 worker->spec->about->name, worker->spec->about->version, worker->index,
                 (int)worker->pid, cn_log_quote(line, strlen(line), quoted, sizeof quoted));
}

/* Reads at most `rounds` times. */
static void
read_stderr(struct cn_worker *worker, int rounds)
{
    char bytes[4096];
    ssize_t n;

    while (rounds-- > 0) {
        n = read(worker->stderr_fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            /* Its end is no news: the process or the socket will tell. */
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
    struct cn_worker *worker = cn_container_of(watch, struct cn_worker, stderr_watch);

    (void)events;
    read_stderr(worker, READ_ROUNDS);
}

/* "worker 2 (pid 123) of counter/1.0 was killed by signal 11 (SIGSEGV); last stderr: ..." */
static void
compose_last_words(struct cn_worker *worker)
{
    const char *line = cn_stderr_tail_last(&worker->tail);
    bool killed = worker->exit.by_signal || worker->killed_for[0];
    char how[CN_ERROR_MESSAGE_MAX + 64], name[32];

    if (worker->load_error[0])
        snprintf(how, sizeof how, "could not load the model: %s", worker->load_error);
    else if (worker->killed_for[0])
        snprintf(how, sizeof how, "was killed by the server: %s", worker->killed_for);
    else
        cn_exit_describe(&worker->exit, how, sizeof how);
    snprintf(worker->last_exit, sizeof worker->last_exit,
             "%s (pid %d) of %.128s/%.128s %.400s%s%.200s", cn_worker_name(worker, name),
             (int)worker->pid, worker->spec->about->name, worker->spec->about->version, how,
             !line[0] ? ""
             : killed ? "; last stderr: "
                      : ": ",
             line);
}

static void
log_end(struct cn_worker *worker)
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

void
cn_worker_note_end(struct cn_worker *worker)
{
    if (worker->stderr_watch.fd >= 0)
        read_stderr(worker, LAST_ROUNDS);
    cn_stderr_tail_end(&worker->tail, on_stderr_line, worker);
    compose_last_words(worker);
    log_end(worker);
}
