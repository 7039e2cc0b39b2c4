/* store/journal/salvage/journal_salvage.c - saves what is whole of a journal that has not all that
 * was written. Owned by the worker's thread.
 *
 * journal_examine.c finds the damage when a store is opened. It is repaired in one transaction of
 * LMDB:
 * - Each transaction of the journal that is whole, by its own checksum and the ledger's, is written
 *   to LMDB, in order.
 * - A key that only a damaged transaction wrote last loses its value in LMDB but keeps its place. A
 *   key without a value is answered with "state_damaged", never with an older value and never with
 *   a new sequence.
 * - The note of losses keeps the number of such keys (journal_loss.c). Then the journal begins
 *   anew. The file DAMAGED is written before the commit, so if the process is killed in between,
 *   the damage is still there and the next process does all of this again.
 *
 * Example: the ledger lists transactions 10 to 14, and a byte of 12 is altered. 10 and 11 are
 * written to LMDB. 12 fails its checksum, so the hashes of its keys, say A and B, go to the list
 * `lost`. 13 and 14 are whole, because the ledger has the seed with which each of them was summed.
 * If 14 wrote A, A has its newest value, and only B is lost. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "store/journal/salvage/journal_salvage_priv.h"

/* --- moving what is whole --- */

static int
mention_add(struct mentions *mentions, uint64_t hash, uint64_t number, struct cn_error *err)
{
    if (mentions->n == mentions->cap) {
        size_t cap = mentions->cap ? mentions->cap * 2 : 1024;
        struct mention *list = cn_try_realloc(mentions->list, cap * sizeof(*list));

        if (!list)
            return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory to repair a store");
        mentions->list = list;
        mentions->cap = cap;
    }
    mentions->list[mentions->n++] = (struct mention){hash, number};
    return 0;
}

static int
mention_compare(const void *left, const void *right)
{
    const struct mention *a = left, *b = right;

    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

static int
apply_txn(struct salvage *salvage, const char *txn, uint64_t number, struct cn_error *err)
{
    struct cn_store *lmdb = salvage->js->lmdb;
    uint32_t n = cn_journal_txn_entries(txn);
    const char *at = txn + CN_JOURNAL_TXN_BYTES;
    struct cn_journal_entry entry;
    int rc = 0;

    for (; rc == 0 && n > 0; n--) {
        at += cn_journal_entry_at(at, &entry);
        if (entry.flags & CN_JOURNAL_REMOVED)
            rc = lmdb->ops->remove(lmdb, entry.key, err);
        else
            rc = lmdb->ops->put(lmdb, entry.key, entry.value, err);
        if (rc == 0 && salvage->lost.n)
            rc = mention_add(&salvage->whole, cn_ledger_hash(entry.key), number, err);
    }
    return rc > 0 ? cn_lmdb_fail_full(lmdb, err) : rc;
}

/* Writes one use of a file to LMDB: first what the ledger lists, then what follows in the journal
 * as long as that is whole. */
static int
apply_unit(struct salvage *salvage, const struct unit *unit, struct cn_error *err)
{
    const struct cn_str file = cn_journal_bytes(unit->file);
    const struct view *view = unit->view;
    uint64_t at = CN_LEDGER_HEADER_BYTES, number = unit->first, seed = 0, first;
    uint64_t txn_at = CN_JOURNAL_HEADER_BYTES;
    struct cn_ledger_entry entry;
    struct cn_journal_txn txn;
    int rc = 0;

    if (view)
        seed = view->journal_seed;
    else if (!cn_journal_get_header(file, &first, &seed))
        return 0;
    for (; view && rc == 0 && cn_ledger_look(view->bytes, at, number, view->seed, &entry);
         number++) {
        at += cn_ledger_entry_bytes(entry.n_keys);
        if (cn_journal_look(file, entry.at, number, seed, &txn) == CN_JOURNAL_COMPLETE &&
            txn.seed == entry.sum) {
            rc = apply_txn(salvage, file.ptr + entry.at, number, err);
        } else {
            salvage->n_damaged++;
            for (uint32_t i = 0; rc == 0 && i < entry.n_keys; i++)
                rc = mention_add(&salvage->lost, cn_ledger_hash_at(&entry, i), number, err);
        }
        seed = entry.sum;
        txn_at = entry.at + entry.bytes;
    }
    for (; rc == 0 && cn_journal_look(file, txn_at, number, seed, &txn) == CN_JOURNAL_COMPLETE;
         number++) {
        rc = apply_txn(salvage, file.ptr + txn_at, number, err);
        txn_at += txn.bytes;
        seed = txn.seed;
    }
    return rc;
}

/* Removes from `lost` each key that a later transaction wrote whole. Both lists are sorted by hash,
 * so one pass over the two is enough. */
static void
lost_reduce(struct salvage *salvage)
{
    struct mentions *lost = &salvage->lost, *whole = &salvage->whole;
    size_t kept = 0, at = 0;

    if (lost->n)
        qsort(lost->list, lost->n, sizeof(*lost->list), mention_compare);
    if (whole->n)
        qsort(whole->list, whole->n, sizeof(*whole->list), mention_compare);
    for (size_t i = 0; i < lost->n; i++) {
        bool written = false;

        if (i + 1 < lost->n && lost->list[i + 1].hash == lost->list[i].hash)
            continue; /* the last mention of a key counts */
        while (at < whole->n && whole->list[at].hash < lost->list[i].hash)
            at++;
        for (; at < whole->n && whole->list[at].hash == lost->list[i].hash; at++)
            written = written || whole->list[at].number > lost->list[i].number;
        if (!written)
            lost->list[kept++] = lost->list[i];
    }
    lost->n = kept;
}

static bool
is_lost(const struct salvage *salvage, uint64_t hash)
{
    size_t low = 0, high = salvage->lost.n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (salvage->lost.list[middle].hash == hash)
            return true;
        if (salvage->lost.list[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* Walks through LMDB's keys and removes the values of lost ones. `without` gets the number of keys
 * that have no value now; the journal is empty by then, so each of these is a lost sequence. */
static int
lost_mark(struct salvage *salvage, uint64_t *without, struct cn_error *err)
{
    struct cn_store *lmdb = salvage->js->lmdb;
    char at[CN_STORE_KEY_MAX];
    struct cn_str after = {at, 0}, key, prefix;
    int rc = 0;

    *without = 0;
    while (salvage->text.len > 0 && (rc = lmdb->ops->next(lmdb, after, &key, &prefix, err)) == 0 &&
           key.ptr) {
        memcpy(at, key.ptr, key.len);
        after.len = key.len;
        if (prefix.len > 0 && is_lost(salvage, cn_ledger_hash(after))) {
            if ((rc = lmdb->ops->put(lmdb, after, CN_STR(""), err)) != 0)
                break;
            prefix.len = 0;
        }
        *without += prefix.len == 0;
    }
    return rc;
}

/* --- all together --- */

/* Does the file hold a use that others have begun since? Its first transaction is then behind those
 * that were moved. */
static bool
is_in_force(const struct cn_journal_file *file, uint64_t below)
{
    char header[CN_JOURNAL_HEADER_BYTES];
    uint64_t first, seed;

    return pread(file->fd, header, sizeof(header), 0) == (ssize_t)sizeof(header) &&
           cn_journal_get_header((struct cn_str){header, sizeof(header)}, &first, &seed) &&
           first >= below;
}

/* Clears the headers of both files, whose content is in LMDB now. The commit released the lock, so
 * it is taken once more, and another process may have begun a file meanwhile; that one stays. */
static int
begin_anew(struct cn_journal_store *js, uint64_t below, struct cn_error *err)
{
    static const char zeros[CN_JOURNAL_HEADER_BYTES];
    int rc = cn_lmdb_begin(js->lmdb, err);

    if (rc != 0)
        return rc;
    for (unsigned i = 0; i < 2; i++) {
        if (!is_in_force(&js->files[i], below)) {
            cn_journal_write_at(js->files[i].fd, zeros, sizeof(zeros), 0);
            cn_journal_write_at(js->files[i].ledger_fd, zeros, sizeof(zeros), 0);
        }
        cn_journal_file_reset(&js->files[i], 0, 0);
        js->files[i].bad_header = false;
    }
    js->lmdb->ops->abort(js->lmdb);
    js->version = 0; /* the next lock reads the notes again */
    js->cur = 0;
    js->unsettled = false;
    return 0;
}

/* Repairs the store in LMDB's transaction, and commits. It also runs once for each new store, to
 * write the first note of losses, by which a later start knows that the store was used. */
static int
salvage_run(struct salvage *salvage, struct cn_error *err)
{
    struct cn_journal_store *js = salvage->js;
    const uint64_t below = salvage->next + 1;
    const bool moves = salvage->n_units > 0 || salvage->text.len > 0;
    struct cn_journal_loss loss = {.salvaged_below = moves ? below : 0,
                                   .lost = js->lost,
                                   .suspect = js->suspect || salvage->suspect};
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < salvage->n_units; i++)
        rc = apply_unit(salvage, &salvage->units[i], err);
    if (rc == 0) {
        lost_reduce(salvage);
        if (salvage->text.len)
            rc = lost_mark(salvage, &loss.lost, err);
    }
    if (rc == 0 && salvage->text.len)
        rc = cn_journal_report(js->dir, &loss, cn_buf_str(&salvage->text), err);
    if (rc == 0 && moves)
        rc = cn_journal_write_note(js, below, (struct cn_str){NULL, 0}, err);
    if (rc == 0)
        rc = cn_journal_put_loss(js->lmdb, &loss, err);
    if (rc != 0) {
        js->lmdb->ops->abort(js->lmdb);
        return rc;
    }
    if ((rc = js->lmdb->ops->commit(js->lmdb, err)) != 0)
        return rc;
    if (salvage->text.len)
        cn_log(CN_LOG_ERROR,
               "event=store_damaged store=%s lost_sequences=%" PRIu64 " suspect=%d "
               "damaged_transactions=%" PRIu64,
               js->dir, loss.lost, loss.suspect, salvage->n_damaged);
    return begin_anew(js, loss.salvaged_below, err);
}

static bool
after_power_cut(const struct salvage *salvage)
{
    for (unsigned i = 0; i < 2; i++)
        if (salvage->views[i].valid && salvage->views[i].boot != salvage->js->boot)
            return true;
    return false;
}

int
cn_journal_verify(struct cn_journal_store *js, bool *changed, struct cn_error *err)
{
    struct salvage salvage = {.js = js};
    int rc = 0;

    *changed = false;
    cn_buf_init(&salvage.text, 0);
    cn_buf_append_str(&salvage.text, cn_buf_str(&js->told));
    cn_journal_examine(&salvage, js->has_loss_note);
    if (salvage.text.len && after_power_cut(&salvage))
        cn_buf_puts(&salvage.text,
                    "the machine was restarted since then, perhaps after a power failure\n");
    if (salvage.text.len && js->read_only) {
        /* A process that opens the store for writing repairs it; a reader shows what is whole. */
        cn_log(CN_LOG_WARN, "event=store_damaged store=%s note=\"%.*s\"", js->dir,
               CN_STR_ARG(cn_buf_str(&salvage.text)));
    } else if (!js->read_only && (salvage.text.len || salvage.behind || !js->has_loss_note)) {
        *changed = true;
        rc = salvage_run(&salvage, err);
    }
    for (unsigned i = 0; i < 2; i++)
        cn_journal_view_close(&salvage.views[i]);
    cn_free(salvage.lost.list);
    cn_free(salvage.whole.list);
    cn_buf_fini(&salvage.text);
    return rc;
}
