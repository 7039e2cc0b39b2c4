/* store/journal/journal_guard.c - checks data.mdb before LMDB opens it, and repairs it. Owned by
 * the worker's thread.
 *
 * LMDB has no checksums and follows altered page numbers into a crash, so the file must be checked
 * before LMDB sees it, at a moment when nobody writes to it. Each process that has a store open
 * holds a shared lock (flock) on its folder. The process that gets the lock exclusively is the
 * first one: it checks data.mdb (lmdb_check.c), makes the file CHECKED and changes to the shared
 * lock. The server removes CHECKED when it begins to use the store and when one of its workers has
 * crashed. So a store is checked once in a server's life, and not after each planned end of a
 * worker.
 *
 * A damaged data.mdb is repaired in a folder of its own:
 * - lmdb_rebuild.c copies what is whole to a new store in `rebuild/`. A key whose value is damaged
 *   stays there without a value.
 * - The note of losses and the file DAMAGED say what is missing.
 * - The damaged file gets a second name, data.mdb~bad-TIME, and the new file replaces it in one
 *   rename. A process that is killed before that leaves the damaged file in its place, and the next
 *   one begins again. Afterwards the journal is compared with the new file as after any damage
 *   (journal_salvage.c). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/log/log.h"
#include "core/time/clock.h"
#include "store/journal/journal_priv.h"
#include "store/lmdb/lmdb_rebuild.h"

#define REBUILD "rebuild"
#define SLOW_MS 1000u

/* --- the check --- */

struct guard {
    const struct cn_disk_options *options;
    int dir, data;
    struct cn_lmdb_report report;
    struct cn_buf *told;
};

static uint64_t
now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void
remove_rebuild(const struct guard *guard)
{
    unlinkat(guard->dir, REBUILD "/data.mdb", 0);
    unlinkat(guard->dir, REBUILD "/lock.mdb", 0);
    unlinkat(guard->dir, REBUILD, AT_REMOVEDIR);
}

/* Adds the note of losses to the new store, writes DAMAGED and commits. */
static int
complete(struct guard *guard, struct cn_store *store, const struct cn_lmdb_rebuilt *rebuilt,
         const char *aside, struct cn_error *err)
{
    const bool unknown = !guard->report.keys_known || rebuilt->note_lost;
    struct cn_journal_loss loss;
    int rc;

    if ((rc = cn_journal_get_loss(store, &loss, err)) != 0)
        return rc;
    loss.lost = rebuilt->lost;
    loss.suspect = loss.suspect || unknown;
    cn_buf_printf(guard->told, "data.mdb is damaged: %.*s; it was set aside as %s\n",
                  CN_STR_ARG(cn_buf_str(&guard->report.text)), aside);
    rc = cn_journal_put_loss(store, &loss, err);
    if (rc == 0)
        rc = cn_journal_report(guard->options->dir, &loss, cn_buf_str(guard->told), err);
    return rc ? rc : store->ops->commit(store, err);
}

/* Replaces the damaged file by the new one. The damaged one keeps its bytes under another name. */
static int
exchange(const struct guard *guard, const char *aside, struct cn_error *err)
{
    if (linkat(guard->dir, "data.mdb", guard->dir, aside, 0) != 0 ||
        renameat(guard->dir, REBUILD "/data.mdb", guard->dir, "data.mdb") != 0)
        return cn_fail_sys(err, CN_E_STATE_STORE, errno, "cannot set the damaged %s/data.mdb aside",
                           guard->options->dir);
    unlinkat(guard->dir, "lock.mdb", 0); /* it knows the last transaction of the old file */
    fsync(guard->dir);
    return 0;
}

/* Builds a new data.mdb from what is whole of the damaged one, and puts it in its place. The new
 * store may need more room than the old one, for pages that are less full, so its limit is twice
 * the size. */
static int
mend(struct guard *guard, uint64_t data_bytes, struct cn_error *err)
{
    struct cn_lmdb_options options = {.max_bytes = 2 * data_bytes + (64u << 20), .sync = true};
    struct cn_lmdb_rebuilt rebuilt;
    struct cn_store *store = NULL;
    struct cn_buf path;
    char aside[64];
    int rc;

    snprintf(aside, sizeof(aside), "data.mdb~bad-%" PRIu64, cn_wall_ms());
    remove_rebuild(guard);
    if (mkdirat(guard->dir, REBUILD, 0700) != 0)
        return cn_fail_sys(err, CN_E_STATE_STORE, errno,
                           "cannot make a folder in %s to repair its data.mdb",
                           guard->options->dir);
    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/" REBUILD, guard->options->dir);
    cn_buf_append(&path, "", 1);
    options.dir = path.data;
    rc = cn_lmdb_rebuild(&options, guard->data, &guard->report, &store, &rebuilt, err);
    if (rc == 0)
        rc = complete(guard, store, &rebuilt, aside, err);
    cn_store_close(store);
    if (rc == 0)
        rc = exchange(guard, aside, err);
    remove_rebuild(guard);
    cn_buf_fini(&path);
    if (rc == 0)
        cn_log(CN_LOG_ERROR,
               "event=data_set_aside store=%s file=%s values_lost=%" PRIu64
               " keys_known=%d reason=\"%.*s\"",
               guard->options->dir, aside, rebuilt.lost, guard->report.keys_known,
               CN_STR_ARG(cn_buf_str(&guard->report.text)));
    return rc;
}

/* Decides what a report means: a whole file is used, a file of another format is left to LMDB's own
 * error, and a damaged one is repaired, unless the store was opened for reading. */
static int
judge(struct guard *guard, uint64_t data_bytes, struct cn_error *err)
{
    if (guard->report.whole || guard->report.foreign)
        return 0;
    if (guard->options->read_only)
        return cn_fail(err, CN_E_STATE_STORE,
                       "%s/data.mdb is damaged: %.*s; the next worker that uses the store moves "
                       "what is whole to a new file",
                       guard->options->dir, CN_STR_ARG(cn_buf_str(&guard->report.text)));
    return mend(guard, data_bytes, err);
}

/* Checks data.mdb unless there is none yet or it is too large (state.checkMaxBytes), and acts on
 * what was found. */
static int
check(struct guard *guard, struct cn_error *err)
{
    const uint64_t begun = now_ms();
    struct stat stat;
    uint64_t ms;
    int rc;

    guard->data = openat(guard->dir, "data.mdb", O_RDONLY | O_CLOEXEC);
    if (guard->data < 0 && errno == ENOENT)
        return 0;
    if (guard->data < 0 || fstat(guard->data, &stat) != 0)
        return cn_fail_sys(err, CN_E_STATE_STORE, errno, "cannot read %s/data.mdb",
                           guard->options->dir);
    if ((uint64_t)stat.st_size > guard->options->check_max_bytes) {
        if (guard->options->check_max_bytes > 0)
            cn_log(CN_LOG_WARN,
                   "event=store_not_checked store=%s bytes=%" PRIu64
                   " note=\"data.mdb is larger than state.checkMaxBytes\"",
                   guard->options->dir, (uint64_t)stat.st_size);
        return 0;
    }
    rc = cn_lmdb_check(guard->data, &guard->report, err);
    ms = now_ms() - begun;
    if (rc == 0 && ms >= SLOW_MS)
        cn_log(CN_LOG_INFO,
               "event=store_checked store=%s bytes=%" PRIu64 " entries=%" PRIu64 " ms=%" PRIu64,
               guard->options->dir, (uint64_t)stat.st_size, guard->report.entries, ms);
    return rc ? rc : judge(guard, (uint64_t)stat.st_size, err);
}

/* --- the lock --- */

static bool
is_checked(const struct guard *guard)
{
    return !guard->options->recheck && !guard->options->read_only &&
           faccessat(guard->dir, CN_STORE_CHECKED, F_OK, 0) == 0;
}

static int
check_alone(struct guard *guard, struct cn_error *err)
{
    int fd, rc = check(guard, err);

    if (guard->data >= 0)
        close(guard->data);
    cn_lmdb_report_fini(&guard->report);
    if (rc != 0 || guard->options->read_only)
        return rc;
    /* If CHECKED cannot be made, the next process checks again. */
    fd = openat(guard->dir, CN_STORE_CHECKED, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return 0;
}

static int
lock(int fd, int how)
{
    int rc;

    while ((rc = flock(fd, how)) != 0 && errno == EINTR)
        continue;
    return rc;
}

/* Takes the shared lock, and waits while another process checks. 0 or -1. */
static int
lock_shared(int dir)
{
    return lock(dir, LOCK_SH);
}

/* Checks the store if nobody has done so. Another process that holds the lock is either checking or
 * has checked. It is waited for, and a second try follows in case that its check failed. */
static int
check_first(struct guard *guard, struct cn_error *err)
{
    for (int tries = 0; tries < 2 && !is_checked(guard); tries++) {
        if (flock(guard->dir, LOCK_EX | LOCK_NB) == 0)
            return is_checked(guard) ? 0 : check_alone(guard, err);
        if (guard->options->read_only || guard->options->recheck) /* another process uses it */
            return 0;
        lock_shared(guard->dir);
    }
    if (!is_checked(guard))
        cn_log(CN_LOG_WARN, "event=store_not_checked store=%s note=\"another process has it open\"",
               guard->options->dir);
    return 0;
}

int
cn_journal_guard(const struct cn_disk_options *options, int *lock_fd, struct cn_buf *told,
                 struct cn_error *err)
{
    struct guard guard = {.options = options, .data = -1, .told = told};
    int rc;

    *lock_fd = guard.dir = open(options->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (guard.dir < 0)
        return 0; /* LMDB will report the reason */
    rc = check_first(&guard, err);
    if (rc == 0 && lock_shared(guard.dir) != 0)
        rc = cn_fail_sys(err, CN_E_STATE_STORE, errno, "cannot lock the folder %s", options->dir);
    return rc;
}

/* --- with or without a journal --- */

#define CHOOSE_TRIES 1000
#define CHOOSE_PAUSE_NS 1000000

/* A process with a journal holds a shared lock on journal.0, and one without holds it on journal.1.
 * It takes its own lock first and only then looks whether anybody holds the other one, so two
 * processes can never have decided differently. Returns false if somebody does. */
static bool
choose(const struct cn_journal_store *js, bool direct)
{
    const int ours = js->files[direct].fd, theirs = js->files[!direct].fd;

    lock(ours, LOCK_SH);
    if (lock(theirs, LOCK_EX | LOCK_NB) == 0) {
        lock(theirs, LOCK_UN);
        return true;
    }
    lock(ours, LOCK_UN);
    return false;
}

int
cn_journal_choose(struct cn_journal_store *js, bool *direct, struct cn_error *err)
{
    const struct timespec pause = {.tv_nsec = CHOOSE_PAUSE_NS};
    const bool wanted = *direct;

    for (int tries = 0; tries < CHOOSE_TRIES; tries++) {
        if (choose(js, wanted))
            return 0;
        if (choose(js, !wanted)) {
            cn_log(CN_LOG_WARN,
                   "event=journal_%s store=%s note=\"other workers have the store open like this\"",
                   wanted ? "used" : "not_used", js->dir);
            *direct = !wanted;
            return 0;
        }
        nanosleep(&pause, NULL); /* another process is deciding at this moment */
    }
    return cn_fail(err, CN_E_STATE_STORE,
                   "the store %s: its workers could not agree whether to use a journal; restart "
                   "the model's workers",
                   js->dir);
}
