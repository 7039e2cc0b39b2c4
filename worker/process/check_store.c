/* worker/process/check_store.c - continuo-worker --check-store DIR: is every record whole?
 * --mend-store DIR does the same after it mended what it can, and --accept-store DIR accepts what
 * was lost.
 *
 * The server runs the second one after a power cut, as a process of its own: what LMDB makes of
 * pages that were never written must not take the server along. What is mended is synced whatever
 * the model's durability is, because one power cut may follow another.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "proto/frame.h"
#include "store/disk_store.h"
#include "store/record/record.h"
#include "store/store.h"
#include "worker/worker.h"
#include "worker/worker_priv.h"

#define DAMAGED_SHOWN_MAX 10
/* Limits of the model do not matter here: nothing is added. */
#define ACCEPT_MAX_BYTES (16ull << 30)
#define ACCEPT_JOURNAL_BYTES (64ull << 20)
#define LOCK_BYTES 4096 /* its header and the first readers */

struct counts {
    uint64_t live, tombstones, damaged;
};

static int
check_records(struct cn_store *store, struct counts *counts, struct cn_error *err)
{
    char at[CN_STORE_KEY_MAX], shown[128];
    struct cn_str after = {at, 0}, id, front, value;
    struct cn_record record;
    int rc;

    if ((rc = cn_store_begin(store, CN_STORE_READ, err)) != 0)
        return rc;
    while ((rc = cn_store_next(store, after, &id, &front, err)) == 0 && id.ptr) {
        memcpy(at, id.ptr, id.len);
        after.len = id.len;
        rc = cn_store_get(store, after, &value, err);
        if (rc != 0 && rc != CN_E_STATE_DAMAGED)
            break;
        if (rc != 0 || cn_record_decode(value, &record, err) != 0) {
            if (counts->damaged++ < DAMAGED_SHOWN_MAX)
                fprintf(stderr, "continuo-worker: sequence %s: %s\n", cn_id_shown(after, shown),
                        err->message);
        } else if (record.flags & CN_RECORD_TOMBSTONE) {
            counts->tombstones++;
        } else {
            counts->live++;
        }
    }
    cn_store_abort(store);
    return rc;
}

static char *
path_in(const char *dir, const char *name)
{
    struct cn_buf path;

    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/%s", dir, name);
    return cn_buf_take(&path, NULL);
}

static bool
has_store(const char *dir)
{
    char *path = path_in(dir, "data.mdb");
    bool has = access(path, F_OK) == 0;

    cn_free(path);
    return has;
}

/* LMDB writes its lock file through a mapping. Where the disk has no room for that the kernel sends
 * SIGBUS, which must not be taken for damage. LMDB finds whatever else is wrong. */
static int
provide_lock(const char *dir, struct cn_error *err)
{
    char *path = path_in(dir, "lock.mdb");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int failed = fd < 0 || fallocate(fd, 0, 0, LOCK_BYTES) < 0 ? errno : 0;

    if (fd >= 0)
        close(fd);
    cn_free(path);
    return failed == ENOSPC || failed == EDQUOT
               ? cn_fail_sys(err, CN_E_STATE_STORE, failed, "no room for lock.mdb")
               : 0;
}

/* Is something else to blame than the store's files: the machine, or a program that does not know
 * their format? Then another try may find the store whole. */
static bool
is_no_damage(const struct cn_error *err)
{
    switch (err->sys_errno) {
    case ENOTSUP:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EROFS:
    case EACCES:
    case EPERM:
    case ENOMEM:
    case EAGAIN:
    case EMFILE:
    case ENFILE:
        return true;
    default:
        return err->code == CN_E_OUT_OF_MEMORY;
    }
}

/* Says why the store cannot be read, and returns the exit status. */
static int
say_failed(const struct cn_error *err)
{
    fprintf(stderr, "continuo-worker: %s\n", err->message);
    if (!is_no_damage(err))
        return 1;
    printf("%s\n", err->message);
    return CN_CHECK_NOT_DONE;
}

int
cn_worker_check_store(const char *dir, bool mend)
{
    struct cn_disk_options options = {.dir = dir,
                                      .max_bytes = ACCEPT_MAX_BYTES,
                                      .journal_max_bytes = ACCEPT_JOURNAL_BYTES,
                                      .sync = true,
                                      .repair_only = true,
                                      .read_only = !mend,
                                      .check_max_bytes = UINT64_MAX,
                                      .recheck = true};
    struct counts counts = {0};
    struct cn_store *store;
    struct cn_error err;
    int rc;

    if (access(dir, F_OK) == 0 && !has_store(dir)) {
        printf("store %s: empty\n", dir);
        return 0;
    }
    if (provide_lock(dir, &err) != 0 || cn_disk_store_open(&options, &store, &err) != 0)
        return say_failed(&err);
    if ((rc = check_records(store, &counts, &err)) != 0) {
        cn_store_close(store);
        return say_failed(&err);
    }
    printf("store %s: %" PRIu64 " live, %" PRIu64 " tombstones, %" PRIu64 " damaged\n", dir,
           counts.live, counts.tombstones, counts.damaged);
    cn_store_close(store);
    return counts.damaged ? CN_CHECK_DAMAGED : 0;
}

int
cn_worker_accept_store(const char *dir)
{
    struct cn_disk_options options = {.dir = dir,
                                      .max_bytes = ACCEPT_MAX_BYTES,
                                      .journal_max_bytes = ACCEPT_JOURNAL_BYTES,
                                      .sync = true,
                                      .repair_only = true,
                                      .check_max_bytes = UINT64_MAX,
                                      .recheck = true};
    struct cn_store *store;
    struct cn_error err;
    uint64_t dropped;
    int rc;

    if (!has_store(dir)) {
        printf("store %s: empty\n", dir);
        return 0;
    }
    if (provide_lock(dir, &err) != 0 || cn_disk_store_open(&options, &store, &err) != 0)
        return say_failed(&err);
    rc = cn_store_accept_loss(store, &dropped, &err);
    if (rc != 0)
        fprintf(stderr, "continuo-worker: %s\n", err.message);
    else
        printf("store %s: %" PRIu64 " lost sequences were forgotten\n", dir, dropped);
    cn_store_close(store);
    return rc != 0 ? CN_CHECK_DAMAGED : 0;
}
