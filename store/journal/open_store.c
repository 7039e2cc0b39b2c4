/* store/journal/open_store.c - opens the store of a folder, with a journal or without one. Owned by
 * the worker's thread.
 *
 * Both kinds use the same files and the same checks, so a store is first opened with its journal,
 * which also finds and repairs damage. If the store is to do without the journal, its content is
 * moved to LMDB, and from then on the functions of direct_store.c are used. */
#include "store/disk_store.h"

#include "core/log/log.h"
#include "store/journal/journal_priv.h"

/* From now on LMDB has commits that no journal knows. If its file is lost, the journal must not
 * replace it as if it had everything. So the numbers of transactions go on at the next multiple of
 * 2^32: a store whose data.mdb is lost then lacks numbers, and is found to be suspect. */
static int
begin_era(struct cn_journal_store *js, struct cn_error *err)
{
    const struct cn_journal_file *cur;
    uint64_t next;
    int rc;

    if ((rc = cn_journal_lock(js, err)) != 0)
        return rc;
    cur = cn_journal_cur(js);
    next = cur->first ? cur->next : js->drained_below;
    if (cur->first == next && (uint32_t)next == 0) { /* nothing was appended since the last one */
        js->lmdb->ops->abort(js->lmdb);
        return 0;
    }
    rc = cn_journal_write_note(js, ((next >> 32) + 1) << 32, (struct cn_str){NULL, 0}, err);
    if (rc != 0)
        js->lmdb->ops->abort(js->lmdb);
    else
        rc = js->lmdb->ops->commit(js->lmdb, err);
    if (rc != 0 || (rc = cn_journal_lock(js, err)) != 0)
        return rc;
    if (!cn_journal_cur(js)->first) /* else another process was quicker */
        rc = cn_journal_start(js, js->cur, err);
    js->lmdb->ops->abort(js->lmdb);
    return rc;
}

/* A store without a journal first moves to LMDB what a journal has from earlier. If the store is
 * suspect, the journal is what tells new values from suspect ones, so it is used until an operator
 * has accepted the loss: `suspect` is set then, and nothing was changed. */
static int
become_direct(struct cn_journal_store *js, bool *suspect, struct cn_error *err)
{
    int rc = cn_journal_lock(js, err); /* reads what opening the store has found */

    if (rc != 0)
        return rc;
    js->lmdb->ops->abort(js->lmdb);
    *suspect = js->suspect;
    if (js->suspect)
        return 0;
    rc = cn_journal_empty(js, err);
    return rc ? rc : begin_era(js, err);
}

int
cn_disk_store_open(const struct cn_disk_options *options, struct cn_store **out,
                   struct cn_error *err)
{
    bool direct = options->direct && !options->read_only && !options->repair_only, suspect = false;
    struct cn_journal_store *js;
    int rc = cn_journal_open(options, &direct, &js, err);

    *out = NULL;
    if (rc == 0 && direct && (rc = become_direct(js, &suspect, err)) != 0)
        cn_journal_close(&js->base);
    if (rc == 0 && suspect) {
        cn_log(CN_LOG_WARN, "event=journal_used store=%s note=\"the store is damaged\"", js->dir);
        cn_journal_close(&js->base);
        direct = false;
        rc = cn_journal_open(options, &direct, &js, err);
    }
    if (rc != 0)
        return rc;
    if (direct) /* the other processes have no journal, and this one must not have one either */
        js->base.ops = &cn_direct_store_ops;
    *out = &js->base;
    return 0;
}
