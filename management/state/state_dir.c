/* management/state/state_dir.c - the state folder: its lock, its format and its boot id. Main
 * thread, at start and end.
 *
 * The lock keeps two servers from writing into one folder, and a new server from starting while a
 * worker of a dead one still writes. It is a flock() on the folder itself, and the workers inherit
 * the descriptor, so it is free only when the server and all of its workers are gone
 * (docs/decisions/0005-the-lock-that-workers-inherit.md).
 *
 * The file `boot` says whether the stores can be trusted. It holds the machine's boot id and the
 * word "running" or "clean". Another boot id with "running" means that the machine went down while
 * a server ran: pages that LMDB had not flushed may be torn, so all stores are marked and checked
 * before they are used. After a kill of the server alone the boot id is the same, and nothing is
 * lost.
 *
 * A server must be able to start on a disk without a free byte. So the small files are written in
 * place and always have the same length.
 */
#include "management/state/state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sodium/crypto_generichash.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/system/random.h"
#include "core/time/clock.h"
#include "management/models/unpacked.h"
#include "management/state/state_dir_priv.h"

#define FORMAT_VERSION 1
#define LOCK_RETRY_MS 10
#define ORPHANS_WAIT 6 /* times as long for workers whose server has ended */
#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
#define LINE_BYTES 80 /* length of the small files: a boot id and a word fit */
#define PID_BYTES 24  /* length of the file `lock`, the same for each pid */
/* A name that is over NAME_MAX when encoded: how much of it stays, and the length of the sum
 * behind. */
#define KEPT_BYTES 180
#define SUM_BYTES 16

struct cn_state_dir {
    char *path;
    int lock_fd;
    char boot_id[64];
    struct cn_unpacked *unpacked;
};

/* Reads the first line of a small file; empty if there is none. Returns 0 or the errno. */
static int
read_line(const char *path, char *out, size_t out_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;
    int rc = 0;

    out[0] = '\0';
    if (fd < 0)
        return errno;
    n = read(fd, out, out_bytes - 1);
    if (n < 0)
        rc = errno;
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    close(fd);
    return rc;
}

/* Writes a small file in place. If the file exists, that needs no free space, and a full disk must
 * not keep a server from starting. The file is not cut and always has the same length, so it lies
 * within one sector, and a power cut leaves it either old or new. What is behind the line is empty
 * lines. */
static int
write_line(const char *dir, const char *name, const char *line, struct cn_error *err)
{
    char *path = cn_state_path(dir, name), text[LINE_BYTES];
    const size_t len = strlen(line);
    int fd, rc = 0;

    cn_assert(len < sizeof text);
    memset(text, '\n', sizeof text);
    memcpy(text, line, len);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || pwrite(fd, text, sizeof text, 0) != (ssize_t)sizeof text || fsync(fd) < 0)
        rc = cn_fail_sys(err, CN_E_CONFIG, errno, "cannot write %s", path);
    if (fd >= 0 && close(fd) < 0 && !rc)
        rc = cn_fail_sys(err, CN_E_CONFIG, errno, "cannot write %s", path);
    cn_free(path);
    return rc;
}

/* Writes our pid into the file `lock`, for the message of a server that finds the folder locked.
 * Nothing else needs it. In place, as write_line() does it. */
static void
tell_pid(const char *path)
{
    char pid[PID_BYTES + 1];
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    memset(pid, '\n', sizeof pid);
    pid[snprintf(pid, sizeof pid, "%ld", (long)getpid())] = '\n';
    if (fd < 0 || pwrite(fd, pid, PID_BYTES, 0) != PID_BYTES)
        cn_log(CN_LOG_WARN, "event=pid_not_written file=%s reason=\"%s\"", path, strerror(errno));
    if (fd >= 0)
        close(fd);
}

static bool
has_ended(const char *pid)
{
    return *pid && kill((pid_t)atol(pid), 0) < 0 && errno == ESRCH;
}

/* Says which process has the lock, by the pid that it wrote. */
static int
refuse(const char *path, const char *holder, struct cn_error *err)
{
    if (!*holder)
        return cn_fail(err, CN_E_CONFLICT,
                       "the state folder %s is in use by another server, whose file `lock` was "
                       "deleted; give this server another --state-dir",
                       path);
    if (has_ended(holder))
        return cn_fail(err, CN_E_CONFLICT,
                       "the state folder %s is still in use by workers of server %s, which has "
                       "ended; start again when they have ended, too",
                       path, holder);
    return cn_fail(err, CN_E_CONFLICT,
                   "the state folder %s is in use by pid %s; give this server another --state-dir",
                   path, holder);
}

/* Waits for the lock: `wait_ms` for a server that may be stopping, and longer for the workers of
 * one that has ended, which end by themselves as soon as the machine lets them. */
static int
wait_for_lock(const struct cn_state_dir *state, uint32_t wait_ms, struct cn_error *err)
{
    const struct timespec pause = {.tv_nsec = LOCK_RETRY_MS * 1000000L};
    char *path = cn_state_path(state->path, "lock");
    uint32_t waited_ms = 0, limit_ms = wait_ms;
    bool orphans = false;
    char holder[32];
    int rc = 0;

    while (!rc && flock(state->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            rc = cn_fail_sys(err, CN_E_CONFIG, errno, "cannot lock the folder %s", state->path);
        } else if (waited_ms < limit_ms) {
            nanosleep(&pause, NULL);
            waited_ms += LOCK_RETRY_MS;
        } else {
            read_line(path, holder, sizeof holder);
            if (orphans || !has_ended(holder)) {
                rc = refuse(state->path, holder, err);
            } else {
                orphans = true;
                limit_ms = wait_ms * ORPHANS_WAIT;
                cn_log(CN_LOG_WARN, "event=state_dir_busy state_dir=%s server=%s max_wait_ms=%u",
                       state->path, holder, limit_ms);
            }
        }
    }
    if (!rc)
        tell_pid(path);
    cn_free(path);
    return rc;
}

/* Takes the lock. It is on the folder itself: a file in it could be deleted while it is locked, and
 * another server would then lock a new file of that name. */
static int
take_lock(struct cn_state_dir *state, uint32_t wait_ms, struct cn_error *err)
{
    int fd = open(state->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    /* Far from the numbers 3 and 4; a worker gets a copy as number 4. */
    state->lock_fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 10);
    if (fd >= 0)
        close(fd);
    if (state->lock_fd < 0)
        return cn_fail_sys(err, CN_E_CONFIG, errno, "cannot open %s", state->path);
    return wait_for_lock(state, wait_ms, err);
}

/* Checks the format before anything else is touched: a newer server may keep things here that we
 * would break. */
static int
check_format(struct cn_state_dir *state, struct cn_error *err)
{
    char *path = cn_state_path(state->path, "FORMAT");
    char line[32], number[16];
    long version;
    int rc = read_line(path, line, sizeof line);

    cn_free(path);
    if (rc == ENOENT || (rc == 0 && !*line)) { /* empty: the disk was full, or a power cut came */
        snprintf(number, sizeof number, "%d", FORMAT_VERSION);
        return write_line(state->path, "FORMAT", number, err);
    }
    if (rc)
        return cn_fail_sys(err, CN_E_CONFIG, rc, "cannot read %s/FORMAT", state->path);
    version = strtol(line, NULL, 10);
    if (version > FORMAT_VERSION)
        return cn_fail(err, CN_E_CONFIG,
                       "the state folder %s has format %ld, which a newer server wrote; this "
                       "server reads format %d: use the newer server, or another --state-dir",
                       state->path, version, FORMAT_VERSION);
    if (version < 1)
        return cn_fail(
            err, CN_E_CONFIG,
            "%s/FORMAT holds \"%s\" instead of a version number: is this a state folder?",
            state->path, line);
    return 0;
}

/* Did the machine go down while a server ran here? Then LMDB's unflushed pages may be torn, and all
 * stores are marked. */
static int
check_boot(struct cn_state_dir *state, struct cn_error *err)
{
    char *path = cn_state_path(state->path, "boot");
    char line[LINE_BYTES], running[LINE_BYTES];
    size_t id_len;
    int rc;

    read_line(path, line, sizeof line);
    cn_free(path);
    /* Without /proc the id is empty. It is then equal each time, so nothing is checked. */
    read_line(BOOT_ID_FILE, state->boot_id, sizeof state->boot_id);
    snprintf(running, sizeof running, "%s running", state->boot_id);
    if (strcmp(line, running) == 0) /* the server was killed: nothing changes */
        return 0;
    id_len = strcspn(line, " ");
    if (*line && strcmp(line + id_len, " clean") != 0) {
        cn_log(
            CN_LOG_WARN,
            "event=unclean_power_off state_dir=%s note=\"each store is checked before it is used\"",
            state->path);
        rc = cn_state_mark_stores(state->path, err);
        if (rc)
            return rc;
    }
    return write_line(state->path, "boot", running, err);
}

static int
make_dir(const char *path, struct cn_error *err)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return cn_fail_sys(err, CN_E_CONFIG, errno, "cannot make the folder %s", path);
    return 0;
}

/* Makes the subfolders that are missing. What a server left half done in `unpacked` is removed. */
static int
make_subdirs(struct cn_state_dir *state, struct cn_error *err)
{
    char *models = cn_state_path(state->path, "models");
    char *unpacked = cn_state_path(state->path, "unpacked");
    int rc;

    state->unpacked = cn_unpacked_open(unpacked, state->boot_id);
    rc = make_dir(models, err);
    if (!rc)
        rc = make_dir(unpacked, err);
    cn_free(models);
    cn_free(unpacked);
    return rc;
}

int
cn_state_dir_open(const char *path, uint32_t wait_ms, struct cn_state_dir **out,
                  struct cn_error *err)
{
    struct cn_state_dir *state;
    char *absolute;
    struct stat about;
    int rc = 0;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return cn_fail(err, CN_E_CONFIG, "cannot make the state folder %s: %s; %s", path,
                       strerror(errno),
                       errno == ENOENT ? "its parent folder must exist (mkdir -p)"
                                       : "choose another folder with --state-dir");
    if (stat(path, &about) == 0 && !S_ISDIR(about.st_mode))
        return cn_fail(
            err, CN_E_CONFIG,
            "the state folder %s is a file, not a folder; choose another folder with --state-dir",
            path);
    absolute = realpath(path, NULL);
    if (!absolute)
        return cn_fail_sys(err, CN_E_CONFIG, errno, "cannot open the state folder %s", path);
    state = cn_alloc(sizeof *state);
    state->path = cn_strdup(absolute);
    free(absolute);
    state->lock_fd = -1;
    if (access(state->path, R_OK | W_OK | X_OK) < 0)
        rc = cn_fail(
            err, CN_E_CONFIG,
            "cannot write to the state folder %s: %s; choose another folder with --state-dir", path,
            strerror(errno));
    if (!rc)
        rc = take_lock(state, wait_ms, err);
    if (!rc)
        rc = check_format(state, err);
    if (!rc)
        rc = check_boot(state, err);
    if (!rc)
        rc = make_subdirs(state, err);
    if (!rc) {
        *out = state;
        return 0;
    }
    cn_unpacked_close(state->unpacked);
    if (state->lock_fd >= 0)
        close(state->lock_fd);
    cn_free(state->path);
    cn_free(state);
    return rc;
}

void
cn_state_dir_close(struct cn_state_dir *state, bool clean)
{
    struct cn_error err;
    char line[LINE_BYTES];

    if (!state)
        return;
    if (clean) {
        snprintf(line, sizeof line, "%s clean", state->boot_id);
        if (cn_state_sync_stores(state->path, &err) || write_line(state->path, "boot", line, &err))
            cn_log(CN_LOG_WARN, "event=state_dir_not_marked_clean reason=\"%s\"", err.message);
    }
    cn_unpacked_close(state->unpacked);
    close(state->lock_fd);
    cn_free(state->path);
    cn_free(state);
}

int
cn_state_dir_lock_fd(const struct cn_state_dir *state)
{
    return state->lock_fd;
}

/* Replaces the end of a name that no file name has room for by a sum of the whole name. No other
 * encoded name has a '~'. */
static void
shorten(const char *text, size_t begun, struct cn_buf *out)
{
    unsigned char sum[SUM_BYTES];

    crypto_generichash(sum, sizeof sum, (const unsigned char *)text, strlen(text), NULL, 0);
    out->len = begun + KEPT_BYTES;
    cn_buf_puts(out, "~");
    for (size_t i = 0; i < sizeof sum; i++)
        cn_buf_printf(out, "%02x", sum[i]);
}

void
cn_state_dir_encode(const char *text, struct cn_buf *out)
{
    const size_t begun = out->len;
    const char *at;

    for (at = text; *at; at++) {
        unsigned char c = (unsigned char)*at;
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                     c == '_' || c == '-' || (c == '.' && at != text);

        if (plain)
            cn_buf_append(out, at, 1);
        else
            cn_buf_printf(out, "%%%02X", c);
    }
    if (!out->failed && out->len - begun > NAME_MAX)
        shorten(text, begun, out);
}

const char *
cn_state_dir_path(const struct cn_state_dir *state)
{
    return state->path;
}

char *
cn_state_dir_store(const struct cn_state_dir *state, const char *name, const char *version)
{
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    cn_buf_printf(&buf, "%s/models/", state->path);
    cn_state_dir_encode(name, &buf);
    cn_buf_puts(&buf, "/");
    cn_state_dir_encode(version, &buf);
    return cn_buf_take(&buf, NULL);
}

char *
cn_state_dir_unpack_place(const struct cn_state_dir *state)
{
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    cn_buf_printf(&buf, "%s/unpacked/%016llx", state->path, (unsigned long long)cn_random_u64());
    return cn_buf_take(&buf, NULL);
}

struct cn_unpacked *
cn_state_dir_unpacked(struct cn_state_dir *state)
{
    return state->unpacked;
}
