/* core/log/log_writer.c - the log files: opened, written, rotated. Used on the log thread, and on
 * the main thread before and after it.
 *
 * Lines for one file are collected in a batch and written with one call. If a write is cut in the
 * middle of a line, because the disk is full, the next batch begins with a line end. Lost lines are
 * counted for each file, and the reason is logged once until a write succeeds again.
 *
 * ts_log.log is different: cn_log writes to it directly, from any thread, through a descriptor
 * whose number never changes. The log thread only looks at its size once a second, and replaces the
 * file behind that number (dup3) when it is too large. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log/log.h"
#include "core/log/log_writer_priv.h"
#include "core/memory/buf.h"

#define BATCH_BYTES (256u * 1024) /* the most that one write(2) gets */
#define PATH_BYTES 1024

struct file {
    int fd;
    uint64_t bytes; /* the size of the file */
    bool torn;      /* the last write was cut in the middle of a line */
    bool failing;   /* the failure was logged already */
    /* the disk had no room for the file: fd is /dev/null, and opening it is tried again */
    bool missing;
    bool outdated; /* the name could not be opened anew, and that was logged already */
    struct cn_buf batch;
    uint64_t lines; /* lines in `batch` */
};

static const char *const names[CN_N_LOG_FILES] = {"ts_log.log", "model_log.log", "access_log.log",
                                                  "ts_metrics.log", "model_metrics.log"};
static const char *const words[CN_N_LOG_FILES] = {"server", "model", "access", "metrics",
                                                  "model_metrics"};

/* Set by cn_log_writer_open, before there are other threads. */
static struct cn_log_options options;
/* either both or neither of them is empty */
static char dir[PATH_BYTES - 64], metrics_dir[PATH_BYTES - 64];

/* Any thread. */
static _Atomic uint64_t dropped[CN_N_LOG_FILES];

static struct file files[CN_N_LOG_FILES];

const char *
cn_log_file_word(enum cn_log_file file)
{
    return words[file];
}

uint64_t
cn_log_files_dropped(enum cn_log_file file)
{
    return atomic_load_explicit(&dropped[file], memory_order_relaxed);
}

void
cn_log_drop(enum cn_log_file file, uint64_t lines)
{
    atomic_fetch_add_explicit(&dropped[file], lines, memory_order_relaxed); /* this is rare */
}

void
cn_log_files_lost(enum cn_log_file file)
{
    cn_log_drop(file, 1);
}

static void
path_of(enum cn_log_file file, unsigned generation, char out[PATH_BYTES])
{
    const char *in = file >= CN_LOG_METRICS ? metrics_dir : dir;

    if (generation)
        snprintf(out, PATH_BYTES, "%s/%s.%u", in, names[file], generation);
    else
        snprintf(out, PATH_BYTES, "%s/%s", in, names[file]);
}

/* Makes the folder with its parents, as TorchServe's log library does. Returns 0 or the errno. */
static int
make_folder(const char *path, struct cn_error *err)
{
    char part[PATH_BYTES];
    size_t len = strlen(path), i;

    for (i = 1; i <= len; i++) {
        int why;

        if (path[i] != '/' && path[i] != '\0')
            continue;
        snprintf(part, sizeof(part), "%.*s", (int)i, path);
        if (mkdir(part, 0755) == 0 || (why = errno) == EEXIST)
            continue;
        cn_fail_sys(err, CN_E_IO, why, "cannot make the folder %s (log-dir)", part);
        return why;
    }
    return 0;
}

/* Opens a file. The server's log keeps the number of its descriptor, because other threads write to
 * it. Returns 0 or the errno. */
static int
open_file(enum cn_log_file which, struct cn_error *err)
{
    struct file *file = &files[which];
    char path[PATH_BYTES];
    struct stat about;
    int fd, why;

    path_of(which, 0, path);
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        why = errno;
        cn_fail_sys(err, CN_E_IO, why, "cannot open the log file %s (log-dir)", path);
        return why;
    }
    file->bytes = fstat(fd, &about) == 0 ? (uint64_t)about.st_size : 0;
    if (file->fd >= 0) {
        dup3(fd, file->fd, O_CLOEXEC);
        close(fd);
    } else {
        file->fd = fd;
    }
    return 0;
}

static void
tell_failing(enum cn_log_file which, const char *why)
{
    if (!files[which].failing)
        cn_log(CN_LOG_WARN, "event=log_failing log=%s why=\"%s\" lines=dropped", words[which], why);
    files[which].failing = true;
}

/* The old file stays in use. Each batch tries again. */
static void
tell_outdated(enum cn_log_file which, const char *why)
{
    if (!files[which].outdated)
        cn_log(CN_LOG_WARN, "event=log_failing log=%s why=\"%s\" lines=kept", words[which], why);
    files[which].outdated = true;
}

static int
open_in_folder(enum cn_log_file which, struct cn_error *err)
{
    int why = make_folder(which >= CN_LOG_METRICS ? metrics_dir : dir, err);

    return why ? why : open_file(which, err);
}

static void
open_again(enum cn_log_file which)
{
    struct file *file = &files[which];
    struct cn_error err;

    if ((file->missing ? open_in_folder(which, &err) : open_file(which, &err)) == 0)
        file->missing = file->outdated = false;
    else if (file->missing)
        tell_failing(which, err.message);
    else
        tell_outdated(which, err.message);
}

/* Opens a file at the start. If the disk has no room for it, lines are lost, as on a disk that
 * becomes full later. */
static int
open_first(enum cn_log_file which, struct cn_error *err)
{
    int why = open_in_folder(which, err);

    if (why != ENOSPC && why != EDQUOT)
        return why ? CN_E_IO : 0;
    tell_failing(which, err->message);
    files[which].missing = true;
    files[which].fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return files[which].fd < 0 ? cn_fail_sys(err, CN_E_IO, errno, "cannot open /dev/null") : 0;
}

/* Moves NAME.1 to NAME.2 and so on, then NAME to NAME.1, and opens a new NAME. With keep 0 the file
 * is deleted instead. If there is no NAME, the last rotation could not open a new one, and moving
 * the old ones once more with each batch would soon lose all of them. */
static void
rotate(enum cn_log_file which)
{
    char from[PATH_BYTES], to[PATH_BYTES];
    unsigned i;

    path_of(which, 0, from);
    for (i = access(from, F_OK) == 0 ? options.keep : 0; i > 0; i--) {
        path_of(which, i - 1, from);
        path_of(which, i, to);
        rename(from, to); /* older files need not be there yet */
    }
    if (options.keep == 0) {
        path_of(which, 0, from);
        unlink(from);
    }
    open_again(which);
}

static bool
is_too_large(const struct file *file, uint64_t more)
{
    return dir[0] && options.file_bytes && file->bytes > 0 &&
           file->bytes + more > options.file_bytes;
}

/* Ends the line in whose middle the last write was cut, so that the next line begins properly. */
static void
mend(struct file *file)
{
    if (file->torn && write(file->fd, "\n", 1) == 1)
        file->torn = false;
}

static void
write_batch(enum cn_log_file which)
{
    struct file *file = &files[which];
    struct cn_buf *batch = &file->batch;
    ssize_t n;

    if (batch->len == 0)
        return;
    if (file->missing)
        open_again(which);
    if (is_too_large(file, batch->len))
        rotate(which);
    mend(file);
    errno = ENOSPC; /* the reason if the file is missing */
    do
        n = file->missing ? -1 : write(file->fd, batch->data, batch->len);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)batch->len) {
        file->failing = false;
        file->bytes += batch->len;
    } else {
        uint64_t lost = file->lines;
        ssize_t i;

        for (i = 0; i < n; i++)
            lost -= batch->data[i] == '\n';
        tell_failing(which, n < 0 ? strerror(errno) : "no space left");
        cn_log_drop(which, lost);
        if (n > 0) {
            file->bytes += (uint64_t)n;
            file->torn = batch->data[n - 1] != '\n';
        }
    }
    file->lines = 0;
    cn_buf_reset(batch);
}

void
cn_log_writer_add(enum cn_log_file which, const char *line, size_t len)
{
    struct file *file = &files[which];

    if (file->batch.len + len > BATCH_BYTES)
        write_batch(which);
    if (cn_buf_append(&file->batch, line, len))
        cn_log_drop(which, 1);
    else
        file->lines++;
}

void
cn_log_writer_flush(void)
{
    for (unsigned i = 0; i < CN_N_LOG_FILES; i++)
        write_batch((enum cn_log_file)i);
}

void
cn_log_writer_look(void)
{
    struct stat about;

    if (files[CN_LOG_SERVER].missing)
        open_again(CN_LOG_SERVER);
    if (!dir[0] || fstat(files[CN_LOG_SERVER].fd, &about) < 0)
        return;
    files[CN_LOG_SERVER].bytes = (uint64_t)about.st_size;
    if (is_too_large(&files[CN_LOG_SERVER], 0))
        rotate(CN_LOG_SERVER);
}

void
cn_log_writer_reopen(void)
{
    for (unsigned i = 0; dir[0] && i < CN_N_LOG_FILES; i++)
        open_again((enum cn_log_file)i);
}

static int
open_all(struct cn_error *err)
{
    int rc = 0;
    unsigned i;

    for (i = 0; i < CN_N_LOG_FILES; i++) {
        files[i] = (struct file){.fd = -1};
        cn_buf_init(&files[i].batch, 0);
    }
    if (!dir[0]) {
        files[CN_LOG_SERVER].fd = files[CN_LOG_MODEL].fd = STDERR_FILENO;
        files[CN_LOG_ACCESS].fd = files[CN_LOG_METRICS].fd = files[CN_LOG_MODEL_METRICS].fd =
            STDOUT_FILENO;
        return 0;
    }
    for (i = 0; i < CN_N_LOG_FILES && !rc; i++)
        rc = open_first((enum cn_log_file)i, err);
    return rc;
}

void
cn_log_writer_close(void)
{
    for (unsigned i = 0; i < CN_N_LOG_FILES; i++) {
        if (dir[0] && files[i].fd >= 0)
            close(files[i].fd);
        cn_buf_fini(&files[i].batch);
    }
}

int
cn_log_writer_open(const struct cn_log_options *wanted, struct cn_error *err)
{
    int rc;

    options = *wanted;
    if (wanted->metrics_dir && !wanted->dir)
        return cn_fail(err, CN_E_CONFIG, "metrics-log-dir needs log-dir");
    if ((wanted->dir && strlen(wanted->dir) >= sizeof(dir)) ||
        (wanted->metrics_dir && strlen(wanted->metrics_dir) >= sizeof(metrics_dir)))
        return cn_fail(err, CN_E_CONFIG, "log-dir or metrics-log-dir is longer than %zu bytes",
                       sizeof(dir) - 1);
    snprintf(dir, sizeof(dir), "%s", wanted->dir ? wanted->dir : "");
    snprintf(metrics_dir, sizeof(metrics_dir), "%s",
             wanted->metrics_dir ? wanted->metrics_dir : dir);
    rc = open_all(err);
    if (rc)
        cn_log_writer_close();
    return rc;
}

bool
cn_log_writer_has_folder(void)
{
    return dir[0] != '\0';
}

int
cn_log_writer_server_fd(void)
{
    return files[CN_LOG_SERVER].fd;
}
