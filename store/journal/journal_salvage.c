/* store/journal/journal_salvage.c - finds out whether the journal has all that was written, and
 * saves what is whole if not. Owned by the worker's thread.
 *
 * A process that opens a store compares three things: what the journal files hold, what their
 * ledgers say was written (journal_ledger.h), and what LMDB's notes say, namely how far the journal
 * was moved there and at which version. What does not match is damage. It is repaired in one
 * transaction of LMDB:
 * - Each transaction of the journal that is whole, by its own checksum and the ledger's, is written
 *   to LMDB, in order.
 * - A key that only a damaged transaction wrote last loses its value in LMDB but keeps its place. A
 *   key without a value is answered with "state_damaged", never with an older value and never with
 *   a new sequence.
 * - The note of losses keeps the number of such keys until an operator accepts them
 *   (cn_store_accept_loss). Then the journal begins anew. The file DAMAGED informs the server,
 *   which does not read LMDB. It is written before the commit, so if the process is killed in
 *   between, the damage is still there and the next process does all of this again.
 *
 * Example: the ledger lists transactions 10 to 14, and a byte of 12 is altered. 10 and 11 are
 * written to LMDB. 12 fails its checksum, so the hashes of its keys, say A and B, go to the list
 * `lost`. 13 and 14 are whole, because the ledger has the seed with which each of them was summed.
 * If 14 wrote A, A has its newest value, and only B is lost.
 *
 * If LMDB's file is not the one that belongs to the journal, because it was lost or restored from a
 * backup, it cannot be known which sequences are affected. The store is then suspect: nothing is
 * answered from LMDB until an operator accepts that.
 *
 * A power failure is not damage as such. The ledger is never synced, so the kernel may have written
 * the journal and not yet the ledger; a ledger of another boot may therefore lack its last
 * entries. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "store/journal/journal_priv.h"
#include "store/record/little_endian.h"

#define NOTE_BYTES 24 /* u64 salvaged_below, u64 lost, u64 suspect */

/* A ledger that was read to the end of its whole entries. */
struct view {
    struct cn_str bytes; /* mapped */
    bool valid;
    uint64_t first, journal_seed, boot, seed;
    uint64_t next; /* entries `first` to `next` - 1 are whole */
    struct cn_ledger_entry last;
};

/* One use of a journal file that should count, and what is there of it. */
struct unit {
    uint64_t first, next;
    const struct cn_journal_file *file;
    const struct view *view; /* its ledger, or NULL if that is missing */
};

/* A key, by its hash, that is in a transaction: lost with it or written by it. */
struct mention {
    uint64_t hash, number;
};

struct mentions {
    struct mention *list;
    size_t n, cap;
};

struct salvage {
    struct cn_journal_store *js;
    struct view views[2];
    struct unit units[4];
    unsigned n_units;
    struct cn_buf text; /* what is wrong, one sentence a line; empty: nothing */
    bool suspect;
    /* a ledger lacks entries of its journal after a power failure, which is not damage */
    bool behind;
    struct mentions lost, whole;
    uint64_t n_damaged; /* the number of damaged transactions */
    uint64_t next;      /* the number behind the last transaction that was written */
};

/* --- reading the ledgers --- */

static void
view_open(struct view *view, int fd)
{
    struct stat stat;
    uint64_t at = CN_LEDGER_HEADER_BYTES;
    void *map;

    if (fd < 0 || fstat(fd, &stat) != 0 || stat.st_size < CN_LEDGER_HEADER_BYTES)
        return;
    map = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return;
    view->bytes = (struct cn_str){map, (size_t)stat.st_size};
    view->valid = cn_ledger_get_header(view->bytes, &view->first, &view->journal_seed, &view->boot);
    view->seed = cn_ledger_seed(view->first, view->journal_seed);
    view->next = view->first;
    while (view->valid && cn_ledger_look(view->bytes, at, view->next, view->seed, &view->last)) {
        at += cn_ledger_entry_bytes(view->last.n_keys);
        view->next++;
    }
}

static void
view_close(struct view *view)
{
    if (view->bytes.ptr)
        munmap((void *)view->bytes.ptr, view->bytes.len);
}

static struct cn_str
bytes_of(const struct cn_journal_file *file)
{
    return (struct cn_str){file->map, file->size};
}

/* --- what does not match --- */

/* Lists the uses of the two files that should count, in the order of their transactions. A ledger
 * belongs to the file with the same first transaction, also if the files were swapped; a file that
 * counts and has no ledger is listed without one. */
static void
units_collect(struct salvage *salvage)
{
    struct cn_journal_store *js = salvage->js;
    bool taken[2] = {false, false};

    for (unsigned i = 0; i < 2; i++) {
        const struct view *view = &salvage->views[i];
        unsigned of = js->files[1 - i].first == view->first ? 1 - i : i;

        if (!view->valid || view->first < js->drained_below ||
            (view->next == view->first && js->files[of].first != view->first))
            continue; /* empty, or of an earlier use of the file */
        salvage->units[salvage->n_units++] =
            (struct unit){view->first, view->next, &js->files[of], view};
        taken[of] = taken[of] || js->files[of].first == view->first;
    }
    for (unsigned i = 0; i < 2; i++)
        if (js->files[i].first && !taken[i])
            salvage->units[salvage->n_units++] =
                (struct unit){js->files[i].first, js->files[i].next, &js->files[i], NULL};
    for (unsigned i = 1; i < salvage->n_units; i++)
        for (unsigned k = i; k > 0 && salvage->units[k].first < salvage->units[k - 1].first; k--) {
            struct unit unit = salvage->units[k];

            salvage->units[k] = salvage->units[k - 1];
            salvage->units[k - 1] = unit;
        }
}

static bool
last_is_there(const struct unit *unit)
{
    const struct cn_ledger_entry *last = &unit->view->last;

    return unit->view->next == unit->first ||
           (last->at + CN_JOURNAL_TXN_BYTES <= unit->file->size &&
            get64(unit->file->map + last->at + CN_JOURNAL_TXN_BYTES - 8) == last->sum);
}

/* Compares what one use of a file holds with what its ledger says. One transaction more than the
 * ledger has is normal: the process was killed between the two writes. */
static void
unit_check(struct salvage *salvage, struct unit *unit)
{
    const unsigned i = (unsigned)(unit->file - salvage->js->files);
    const uint64_t has = unit->file->first == unit->first ? unit->file->next : unit->first;

    if (!unit->view) {
        cn_buf_printf(&salvage->text, "ledger.%u is missing or damaged\n", i);
    } else if (has < unit->view->next || !last_is_there(unit)) {
        cn_buf_printf(&salvage->text,
                      "journal.%u is damaged, truncated, or belongs to another store: it ends at "
                      "transaction %" PRIu64 " of %" PRIu64 " to %" PRIu64 "\n",
                      i, has, unit->first, unit->view->next - 1);
    } else if (has > unit->view->next + 1 && unit->view->boot != salvage->js->boot) {
        /* a power failure: the kernel had written the journal, not the ledger */
        salvage->behind = true;
    } else if (has > unit->view->next + 1) {
        cn_buf_printf(&salvage->text, "ledger.%u is damaged or truncated\n", i);
    } else if (unit->view != &salvage->views[i]) {
        cn_buf_puts(&salvage->text, "files of the journal were swapped\n");
    }
    unit->next = has > unit->next ? has : unit->next;
}

/* Checks that LMDB belongs to the journal. The uses of the files must follow each other without a
 * gap, beginning where LMDB's note says that the drain is, and LMDB must not be older than it was
 * at a commit. `era`: the store was used before, so it must have something to show. */
static void
check_lmdb(struct salvage *salvage, bool era)
{
    struct cn_journal_store *js = salvage->js;
    const struct unit *units = salvage->units;
    const uint64_t version = cn_lmdb_version(js->lmdb) + (js->read_only ? 1 : 0);
    bool gap = false;

    for (unsigned i = 0; i + 1 < salvage->n_units; i++)
        gap = gap || units[i].next != units[i + 1].first;
    if (salvage->n_units == 0) {
        struct cn_str key, prefix;

        gap = js->salvaged_below != js->drained_below &&
              (js->lmdb->ops->next(js->lmdb, CN_STR(""), &key, &prefix, NULL) != 0 || key.ptr);
        gap = gap || (era && js->drained_below > 1 && js->salvaged_below != js->drained_below);
    } else {
        gap = gap || units[0].first != js->drained_below;
    }
    if (gap)
        cn_buf_puts(&salvage->text,
                    "data.mdb and the journal's files do not belong together: one of them is "
                    "missing, or older than the others\n");
    salvage->suspect = gap;
    if (js->told.len > 0)
        return; /* a data.mdb that was rebuilt has another version */
    for (unsigned i = 0; i < salvage->n_units && !gap; i++)
        if (units[i].view && units[i].view->next > units[i].first &&
            units[i].view->last.version > version) {
            cn_buf_puts(&salvage->text, "data.mdb is missing, or older than the journal\n");
            break;
        }
}

static void
examine(struct salvage *salvage, bool era)
{
    struct cn_journal_store *js = salvage->js;
    bool ledgers = false, both = false;

    for (unsigned i = 0; i < 2; i++) {
        view_open(&salvage->views[i], js->files[i].ledger_fd);
        ledgers = ledgers || salvage->views[i].valid;
    }
    units_collect(salvage);
    salvage->next = js->drained_below;
    if (!era && !ledgers && salvage->n_units == 0)
        return; /* the store is new */
    for (unsigned i = 0; i < salvage->n_units; i++) {
        unit_check(salvage, &salvage->units[i]);
        salvage->next =
            salvage->units[i].next > salvage->next ? salvage->units[i].next : salvage->next;
    }
    for (unsigned i = 0; i < 2; i++)
        both = both || (js->files[i].bad_header && !salvage->views[i].valid &&
                        js->salvaged_below != js->drained_below);
    if (both)
        cn_buf_puts(&salvage->text, "a file of the journal and its ledger are damaged\n");
    check_lmdb(salvage, era);
    salvage->suspect = salvage->suspect || both;
}

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
    const struct cn_str file = bytes_of(unit->file);
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

/* --- the report --- */

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
    if (fd < 0 || (rc = cn_journal_write_at(fd, text.data, text.len, 0)) != 0)
        rc = cn_fail_sys(err, CN_E_STATE_STORE, fd < 0 ? errno : rc, "cannot write %s", path);
    if (fd >= 0)
        close(fd);
    cn_buf_fini(&text);
    cn_free(path);
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
    examine(&salvage, js->has_loss_note);
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
        view_close(&salvage.views[i]);
    cn_free(salvage.lost.list);
    cn_free(salvage.whole.list);
    cn_buf_fini(&salvage.text);
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
