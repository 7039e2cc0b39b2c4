/* store/journal/salvage/journal_examine.c - finds out whether the journal has all that was written.
 * Owned by the worker's thread.
 *
 * A process that opens a store compares three things: what the journal files hold, what their
 * ledgers say was written (journal_ledger.h), and what LMDB's notes say, namely how far the journal
 * was moved there and at which version. What does not match is damage, which journal_salvage.c
 * repairs.
 *
 * If LMDB's file is not the one that belongs to the journal, because it was lost or restored from a
 * backup, it cannot be known which sequences are affected. The store is then suspect: nothing is
 * answered from LMDB until an operator accepts that.
 *
 * A power failure is not damage as such. Only the beginning of a ledger is ever synced, so the
 * kernel may have written the journal and not yet the ledger; a ledger of another boot may
 * therefore lack its last entries.
 */
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "store/journal/salvage/journal_salvage_priv.h"
#include "store/record/little_endian.h"

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

void
cn_journal_view_close(struct view *view)
{
    if (view->bytes.ptr)
        munmap((void *)view->bytes.ptr, view->bytes.len);
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

void
cn_journal_examine(struct salvage *salvage, bool era)
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
