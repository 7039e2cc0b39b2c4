/* store/lmdb/lmdb_check.h - is an LMDB file whole? Reads data.mdb by its format (LMDB 0.9, 64 bits,
 * little-endian) and never through LMDB, which follows altered page numbers into a SIGSEGV.
 *
 * The walk begins at the newest meta page, as LMDB does, and reads the list of free pages, the main
 * database and the database of pieces: page numbers are in range and none is met twice or free,
 * each page is packed as LMDB packs it, keys are in order and within the bounds of the page above,
 * each database has the number of entries that it should have, and each entry is whole by its seal
 * (lmdb_seal.h). Reads are bounded by the file's size; memory is two bits a page and a page for
 * each level.
 *
 * A damaged file is walked a second time with a visitor, which gets what is certain. LMDB never
 * writes to a page in use: it writes a copy and frees the old page. So a page of an older state is
 * in the list of free pages, and a whole entry in a page that is not is the newest one of its key,
 * wherever that page is. That holds while the newest meta page and the list of free pages are
 * whole. Where they are not, keys are shown without values. No state, any thread.
 */
#ifndef CN_STORE_LMDB_LMDB_CHECK_H
#define CN_STORE_LMDB_LMDB_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/text/str.h"

struct cn_lmdb_report {
    bool whole;       /* nothing is wrong; the rest counts only when this is false */
    bool foreign;     /* a store of another format, or not a store: it is no matter of ours */
    bool keys_known;  /* the databases have all their keys */
    bool values_sure; /* whole values are the newest ones */
    bool free_known; /* so is the list of free pages: pages that were not reached can be searched */
    uint64_t pages, entries, lost_values, problems;
    struct cn_buf text; /* the first problems, a sentence each, separated by "; " */
};

/* `value` is as it stands in LMDB, with its seal; ptr NULL: it is lost, the key is known. */
struct cn_lmdb_visitor {
    void (*entry)(void *ctx, bool pieces, struct cn_str key, struct cn_str value);
    void *ctx;
};

/* Reads the whole file of this descriptor, which nobody may be writing to. CN_E_OUT_OF_MEMORY,
 * CN_E_STATE_STORE: it cannot be read. An empty file is whole. */
int cn_lmdb_check(int fd, struct cn_lmdb_report *out, struct cn_error *err);
/* The same once more, with what cn_lmdb_check said: shows each certain entry, some of them
 * twice. */
int cn_lmdb_visit(int fd, const struct cn_lmdb_report *report,
                  const struct cn_lmdb_visitor *visitor, struct cn_error *err);
void cn_lmdb_report_fini(struct cn_lmdb_report *report);

#endif
