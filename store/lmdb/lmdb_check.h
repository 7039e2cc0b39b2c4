/* store/lmdb/lmdb_check.h - checks whether an LMDB file is whole. It reads data.mdb by its format
 * (LMDB 0.9, 64 bits, little-endian) and never through LMDB, which follows altered page numbers
 * into a SIGSEGV.
 *
 * The walk begins at the newest meta page, as LMDB does, and reads the list of free pages, the main
 * database and the database of pieces. Page numbers must be in range, used once, and not free. A
 * page must be packed as LMDB packs it, and its keys must be in order and within the bounds that
 * the page above gives. Each database must have its number of entries, and each entry must be whole
 * by its seal (lmdb_seal.h). Reading is bounded by the file's size; memory is two bits for each
 * page and one page for each level.
 *
 * A damaged file is walked a second time with a receiver, which gets the entries that are certain.
 * LMDB never writes to a page in use: it writes a copy and frees the old page. So pages of older
 * states are in the list of free pages, and a whole entry in any other page is the newest one of
 * its key, even if no page leads to it any more. This holds while the newest meta page and the list
 * of free pages are whole. If they are not, keys are shown without values. No state, any thread. */
#ifndef CN_STORE_LMDB_LMDB_CHECK_H
#define CN_STORE_LMDB_LMDB_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/text/str.h"

struct cn_lmdb_report {
    bool whole;       /* nothing is wrong; the other members count only if this is false */
    bool foreign;     /* not a store, or one of another format: it is left to LMDB's own check */
    bool keys_known;  /* no key is missing */
    bool values_sure; /* values that are whole are the newest ones */
    /* the list of free pages is whole, so pages that nothing leads to can be searched */
    bool free_known;
    uint64_t pages, entries, lost_values, problems;
    struct cn_buf text; /* the first problems, separated by "; " */
};

/* Its function `entry` is called for each entry. `pieces`: the entry is in the database of pieces.
 * `value` is as in LMDB, with its seal; ptr NULL: the value is lost and only the key is known. */
struct cn_lmdb_receiver {
    void (*entry)(void *ctx, bool pieces, struct cn_str key, struct cn_str value);
    void *ctx;
};

/* Checks the file of this descriptor, to which nobody may be writing. An empty file is whole.
 * cn_lmdb_report_fini frees what `out` holds, also after a failure. CN_E_OUT_OF_MEMORY,
 * CN_E_STATE_STORE: the file cannot be read. */
int cn_lmdb_check(int fd, struct cn_lmdb_report *out, struct cn_error *err);
/* Walks through the file once more, with the report of cn_lmdb_check, and shows each certain entry
 * to the receiver; some entries are shown twice. */
int cn_lmdb_visit(int fd, const struct cn_lmdb_report *report,
                  const struct cn_lmdb_receiver *receiver, struct cn_error *err);
void cn_lmdb_report_fini(struct cn_lmdb_report *report);

#endif
