/* store/journal/salvage/journal_loss.c - what a store has lost, until an operator accepts it. Owned
 * by the worker's thread.
 *
 * A note in LMDB keeps the number of keys that have lost their value. The file DAMAGED informs the
 * server, which does not read LMDB. Both are written by a repair (journal_salvage.c), and removed
 * by cn_store_accept_loss. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "store/journal/journal_priv.h"
#include "store/record/little_endian.h"

#define NOTE_BYTES 24 /* u64 salvaged_below, u64 lost, u64 suspect */

int
cn_journal_get_loss(struct cn_store *lmdb, struct cn_journal_loss *out, struct cn_error *err)
{
    struct cn_str note;
    int rc = cn_lmdb_get_note(lmdb, CN_LMDB_NOTE_LOSS, &note, err);

    *out = (struct cn_journal_loss){0};
    if (rc == 0 && note.len == NOTE_BYTES)
        *out = (struct cn_journal_loss){get64(note.ptr), get64(note.ptr + 8),
                                        get64(note.ptr + 16) != 0, true};
    return rc;
}

int
cn_journal_put_loss(struct cn_store *lmdb, const struct cn_journal_loss *loss, struct cn_error *err)
{
    char note[NOTE_BYTES];

    put64(note, loss->salvaged_below);
    put64(note + 8, loss->lost);
    put64(note + 16, loss->suspect);
    return cn_lmdb_put_note(lmdb, CN_LMDB_NOTE_LOSS, (struct cn_str){note, sizeof(note)}, err);
}

int
cn_journal_read_loss(struct cn_journal_store *js, struct cn_error *err)
{
    struct cn_journal_loss loss;
    int rc = cn_journal_get_loss(js->lmdb, &loss, err);

    if (rc != 0)
        return rc;
    js->has_loss_note = loss.is_there;
    js->salvaged_below = loss.salvaged_below;
    js->lost = loss.lost;
    js->suspect = loss.suspect;
    return 0;
}

static char *
damaged_path(const char *dir)
{
    struct cn_buf path;

    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/" CN_STORE_DAMAGED, dir);
    return cn_buf_take(&path, NULL);
}

int
cn_journal_report(const char *dir, const struct cn_journal_loss *loss, struct cn_str said,
                  struct cn_error *err)
{
    char *path = damaged_path(dir);
    struct cn_buf text;
    int fd, rc = 0;

    cn_buf_init(&text, 0);
    cn_buf_printf(&text, "lost %" PRIu64 "\nsuspect %d\n%.*s", loss->lost, loss->suspect,
                  CN_STR_ARG(said));
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0 && (rc = cn_journal_write_at(fd, text.data, text.len, 0)) == 0 && fsync(fd) != 0)
        rc = errno; /* LMDB's note is synced next, and the server looks for this file only */
    if (fd < 0 || rc != 0)
        rc = cn_fail_sys(err, CN_E_STATE_STORE, fd < 0 ? errno : rc, "cannot write %s", path);
    if (fd >= 0)
        close(fd);
    cn_buf_fini(&text);
    cn_free(path);
    return rc;
}

/* Removes the keys that have no value and no entry in the journal, which are the lost ones. Called
 * inside the lock. */
static int
drop_lost(struct cn_journal_store *js, uint64_t *dropped, struct cn_error *err)
{
    struct cn_store *lmdb = js->lmdb;
    char at[CN_STORE_KEY_MAX];
    struct cn_str after = {at, 0}, key, prefix;
    int rc;

    while ((rc = lmdb->ops->next(lmdb, after, &key, &prefix, err)) == 0 && key.ptr) {
        memcpy(at, key.ptr, key.len);
        after.len = key.len;
        if (prefix.len > 0 || cn_journal_has(js, after))
            continue;
        if ((rc = lmdb->ops->remove(lmdb, after, err)) != 0)
            break;
        ++*dropped;
    }
    return rc;
}

int
cn_store_accept_loss(struct cn_store *store, uint64_t *dropped, struct cn_error *err)
{
    struct cn_journal_store *js = cn_journal_of(store);
    struct cn_journal_loss loss = {.lost = 0};
    char *path;
    int rc;

    *dropped = 0;
    if ((rc = cn_journal_lock(js, err)) != 0)
        return rc;
    loss.salvaged_below = js->salvaged_below;
    if ((rc = drop_lost(js, dropped, err)) != 0 ||
        (rc = cn_journal_put_loss(js->lmdb, &loss, err)) != 0) {
        js->lmdb->ops->abort(js->lmdb);
        return rc;
    }
    if ((rc = js->lmdb->ops->commit(js->lmdb, err)) != 0)
        return rc;
    path = damaged_path(js->dir);
    if (unlink(path) != 0 && errno != ENOENT)
        rc = cn_lmdb_fail_errno(js->lmdb, errno, "remove DAMAGED", err);
    cn_free(path);
    return rc;
}
