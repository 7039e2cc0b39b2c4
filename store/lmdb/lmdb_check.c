/* store/lmdb/lmdb_check.c - walks through an LMDB file page by page. lmdb_check.h says what is
 * checked, and why a whole entry in a page that is not free is the newest one. lmdb_pages.c reads
 * the pages, and says which rule keeps altered numbers from doing harm.
 *
 * The format in short: a file is an array of pages. Pages 0 and 1 are meta pages, written in turn;
 * the one with the higher transaction number counts. It names the roots of two B+ trees, the list
 * of free pages and the main database. A page has a header of 16 bytes, then an array of offsets
 * from its beginning, and nodes from its end. A branch's node has a key and a child page, a leaf's
 * node a key and a value. A value of more than about half a page is in overflow pages.
 *
 * The first walk counts and describes problems. The second one (walk->receiver is set) passes the
 * entries to the receiver instead. */
#include "store/lmdb/lmdb_check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "core/memory/mem.h"
#include "store/lmdb/lmdb_check_priv.h"
#include "store/lmdb/lmdb_seal.h"
#include "store/store.h"

#define MAGIC 0xbeefc0deu
#define DATA_VERSION 1u
#define META_BYTES 136u
#define DB_BYTES 48u
#define PAGE_BYTES_MIN 512u
#define PAGE_BYTES_MAX 32768u
#define FREE_DB_FLAGS 8u /* MDB_INTEGERKEY */
#define NO_PAGE UINT64_MAX

/* --- entries --- */

/* Reads an entry of the list of free pages: a u64 count and the page numbers, the highest one
 * first. */
static void
take_free(struct walk *walk, const struct node *node, struct cn_str value)
{
    const uint64_t room = value.len / 8, n = room ? get64(value.ptr) : 0;
    uint64_t before = walk->meta.last + 1;

    if (node->key.len != 8 || get64(node->key.ptr) > walk->meta.txn || value.len % 8 != 0 ||
        room == 0 || n > room - 1) {
        cn_lmdb_problem(walk, "an entry in the list of free pages is altered");
        return;
    }
    for (uint64_t i = 1; i <= n; i++) {
        const uint64_t page = get64(value.ptr + 8 * i);

        if (page < 2 || page >= before ||
            (page < walk->n_pages && cn_lmdb_bit_get(walk->free, page))) {
            cn_lmdb_problem(walk, "the list of free pages is altered");
            return;
        }
        before = page;
        if (page < walk->n_pages)
            cn_lmdb_bit_set(walk->free, page);
        else
            walk->free_beyond++;
    }
}

static struct db
db_read(const char *at)
{
    return (struct db){get16(at + 4), get16(at + 6), get64(at + 32), get64(at + 40)};
}

/* Reads the head of the database of pieces, which LMDB keeps as a value of the main database. */
static void
take_database(struct walk *walk, const struct node *node)
{
    static const struct cn_str name = CN_STR("\2pieces");

    if (!cn_str_eq(node->key, name) || node->value.len != DB_BYTES ||
        node->flags != NODE_DATABASE || get32(node->value.ptr) != 0) {
        cn_lmdb_problem(walk, "the head of the database of pieces is altered");
        return;
    }
    walk->pieces = db_read(node->value.ptr);
    walk->has_pieces = true;
}

/* True for a store of another format, which says so in its first entry; the walk then ends. */
static bool
is_foreign(struct walk *walk, const struct node *node, struct cn_str value)
{
    static const struct cn_str name = CN_STR("\0format");

    if (!cn_str_eq(node->key, name) ||
        (value.len == 4 + CN_LMDB_SEAL_BYTES &&
         (cn_lmdb_seal_check(node->key, value) != 0 || get32(value.ptr) == CN_STORE_FORMAT)))
        return false;
    walk->report->foreign = value.len == 4 || cn_lmdb_seal_check(node->key, value) == 0;
    walk->stopped = walk->report->foreign;
    return walk->stopped;
}

static bool
key_has_its_form(enum which which, struct cn_str key)
{
    if (which == DB_PIECES)
        return key.len > 7 && key.len <= CN_STORE_KEY_MAX + 7 && key.ptr[0] == 2;
    return key.len > 1 && key.len <= CN_STORE_KEY_MAX + 1 && (key.ptr[0] == 0 || key.ptr[0] == 1);
}

static void
show(struct walk *walk, struct cn_str key, struct cn_str value)
{
    if (walk->receiver)
        walk->receiver->entry(walk->receiver->ctx, walk->which == DB_PIECES, key,
                              walk->report->values_sure ? value : (struct cn_str){NULL, 0});
}

/* Checks an entry of a sequence, a piece or a note by its seal. A wrong seal of the key means that
 * the key itself cannot be believed; a wrong seal of the value loses that value only. */
static void
take_entry(struct walk *walk, const struct node *node)
{
    const bool big = node->flags & NODE_BIG, readable = !big || cn_lmdb_big_read(walk, node);
    const struct cn_str value = big ? cn_buf_str(&walk->big) : node->value;
    enum cn_lmdb_seal seal;

    if (walk->stopped || (readable && is_foreign(walk, node, value)))
        return;
    if ((node->flags & ~NODE_BIG) != 0 || !key_has_its_form(walk->which, node->key)) {
        cn_lmdb_problem(walk, "a key in %s is altered", cn_lmdb_db_names[walk->which]);
        return;
    }
    seal = readable ? cn_lmdb_seal_check(node->key, value) : CN_LMDB_SEAL_VALUE;
    walk->sealed += seal != CN_LMDB_SEAL_KEY;
    if (seal == CN_LMDB_SEAL_KEY) {
        cn_lmdb_problem(walk, "a key in %s, or its checksum, is altered",
                        cn_lmdb_db_names[walk->which]);
        return;
    }
    if (seal == CN_LMDB_SEAL_VALUE)
        walk->report->lost_values += !walk->receiver;
    show(walk, node->key, seal == CN_LMDB_SEAL_INTACT ? value : (struct cn_str){NULL, 0});
}

static void
take_leaf(struct walk *walk, const char *page)
{
    for (unsigned i = 0; i < cn_lmdb_node_count(page) && !walk->stopped; i++) {
        const struct node node = cn_lmdb_node_at(walk, page, i, true);

        walk->entries++;
        if (walk->which == DB_FREE) {
            if (!(node.flags & NODE_BIG))
                take_free(walk, &node, node.value);
            else if (cn_lmdb_big_read(walk, &node))
                take_free(walk, &node, cn_buf_str(&walk->big));
        } else if (walk->which == DB_MAIN && node.flags & NODE_DATABASE) {
            take_database(walk, &node);
        } else {
            take_entry(walk, &node);
        }
    }
}

/* --- trees --- */

/* Walks through a page and those below it. A branch gives its children the bounds of their keys:
 * child `i` has keys from node `i`'s on and below those of node `i` + 1. */
static void
walk_page(struct walk *walk, uint64_t number, const struct db *db, unsigned level,
          struct bounds bounds)
{
    const bool leaf = level + 1 == db->depth;
    char *page = walk->pages[level];

    if (!page && !(page = walk->pages[level] = cn_try_alloc(walk->meta.page_bytes)))
        walk->failed = walk->stopped = true;
    if (walk->stopped || !cn_lmdb_page_take(walk, number) ||
        !cn_lmdb_page_read(walk, number, leaf ? PAGE_LEAF : PAGE_BRANCH, page))
        return;
    if (!cn_lmdb_page_is_sound(walk, page, leaf)) {
        cn_lmdb_problem(walk, "page %" PRIu64 " is damaged", number);
        return;
    }
    if (!cn_lmdb_keys_are_in_order(walk, page, leaf, &bounds)) {
        cn_lmdb_problem(walk, "keys of page %" PRIu64 " are not in order", number);
        return;
    }
    if (leaf) {
        take_leaf(walk, page);
        return;
    }
    for (unsigned i = 0; i < cn_lmdb_node_count(page) && !walk->stopped; i++) {
        struct bounds below = bounds;

        if (i > 0)
            below.low = cn_lmdb_node_at(walk, page, i, false).key;
        if (i + 1 < cn_lmdb_node_count(page))
            below.high = cn_lmdb_node_at(walk, page, i + 1, false).key;
        walk_page(walk, cn_lmdb_node_at(walk, page, i, false).child, db, level + 1, below);
    }
}

/* Walks through one database. True: no problem was found in it. */
static bool
walk_db(struct walk *walk, enum which which, const struct db *db)
{
    const uint64_t before = walk->report->problems;

    walk->which = which;
    walk->entries = 0;
    if (db->flags != (which == DB_FREE ? FREE_DB_FLAGS : 0) || db->depth > DEPTH_MAX ||
        (db->root == NO_PAGE) != (db->depth == 0) || (db->root == NO_PAGE && db->entries != 0)) {
        cn_lmdb_problem(walk, "the head of %s is altered", cn_lmdb_db_names[which]);
        return false;
    }
    if (db->root != NO_PAGE)
        walk_page(walk, db->root, db, 0, (struct bounds){{NULL, 0}, {NULL, 0}});
    if (!walk->stopped && walk->entries != db->entries)
        cn_lmdb_problem(walk, "%s has %" PRIu64 " of %" PRIu64 " entries", cn_lmdb_db_names[which],
                        walk->entries, db->entries);
    walk->report->entries += walk->entries;
    return walk->report->problems == before;
}

/* Searches the leaf pages that are in use but that no page led to, because a page above them is
 * damaged. */
static void
search_pages(struct walk *walk)
{
    char *page = walk->pages[0];

    if (!page && !(page = walk->pages[0] = cn_try_alloc(walk->meta.page_bytes))) {
        walk->failed = true;
        return;
    }
    for (uint64_t i = 2; i < walk->n_pages; i++) {
        if (cn_lmdb_bit_get(walk->seen, i) || cn_lmdb_bit_get(walk->free, i) ||
            !cn_lmdb_page_read(walk, i, PAGE_LEAF, page) ||
            !cn_lmdb_page_is_sound(walk, page, true))
            continue;
        for (unsigned n = 0; n < cn_lmdb_node_count(page); n++) {
            const struct node node = cn_lmdb_node_at(walk, page, n, true);

            walk->which = node.key.len > 0 && node.key.ptr[0] == 2 ? DB_PIECES : DB_MAIN;
            if (!(node.flags & ~NODE_BIG))
                take_entry(walk, &node);
        }
    }
}

/* --- meta pages --- */

static bool
meta_read(struct walk *walk, uint64_t at, struct meta *out)
{
    char page[HEADER_BYTES + META_BYTES];
    const char *meta = page + HEADER_BYTES;

    if (!cn_lmdb_read_at(walk, page, sizeof(page), at))
        return false;
    *out = (struct meta){
        .page_bytes = get32(meta + 24),
        .map_bytes = get64(meta + 16),
        .dbs = {db_read(meta + 24), db_read(meta + 24 + DB_BYTES)},
        .last = get64(meta + 120),
        .txn = get64(meta + 128),
    };
    return get64(page) == (at ? 1 : 0) && (get16(page + 10) & PAGE_KINDS) == PAGE_META &&
           get32(meta) == MAGIC && get32(meta + 4) == DATA_VERSION &&
           out->page_bytes >= PAGE_BYTES_MIN && out->page_bytes <= PAGE_BYTES_MAX &&
           (out->page_bytes & (out->page_bytes - 1)) == 0 && get32(meta + 24 + DB_BYTES) == 0 &&
           out->last > 0 && out->map_bytes >> 48 == 0 &&
           out->last < out->map_bytes / out->page_bytes;
}

/* Reads the second meta page. Its offset is known from the first one's page size; if that one is
 * damaged, each possible page size is tried. */
static bool
second_meta_read(struct walk *walk, uint32_t page_bytes, struct meta *out)
{
    for (uint32_t bytes = PAGE_BYTES_MIN; bytes <= PAGE_BYTES_MAX; bytes *= 2)
        if ((page_bytes == 0 || bytes == page_bytes) && meta_read(walk, bytes, out) &&
            out->page_bytes == bytes)
            return true;
    return false;
}

/* Reads the meta pages. Each transaction writes the page of its number's parity, so the numbers of
 * two whole pages follow each other. If only one is whole, it cannot be known whether it is the
 * newest: its keys are used and its values are not. */
static bool
metas_read(struct walk *walk)
{
    struct meta metas[2];
    const bool first = meta_read(walk, 0, &metas[0]);
    const bool second = second_meta_read(walk, first ? metas[0].page_bytes : 0, &metas[1]);
    const uint64_t newest = second && (!first || metas[1].txn > metas[0].txn);

    walk->meta = metas[newest];
    if (first && second &&
        ((metas[0].txn == 0 && metas[1].txn == 0) ||
         (metas[newest].txn == metas[1 - newest].txn + 1 && metas[newest].txn % 2 == newest)))
        return true;
    cn_lmdb_problem(walk, "a meta page is damaged");
    walk->report->keys_known = walk->report->values_sure = walk->report->free_known = false;
    return first || second;
}

/* --- all --- */

static void
walk_all(struct walk *walk)
{
    struct cn_lmdb_report *report = walk->report;
    bool free_whole, trees_whole;

    walk->n_pages = walk->file_bytes / walk->meta.page_bytes;
    if (walk->n_pages > walk->meta.last)
        walk->n_pages = walk->meta.last + 1;
    walk->seen = cn_try_alloc(walk->n_pages / 8 + 1);
    walk->free = cn_try_alloc(walk->n_pages / 8 + 1);
    if (!walk->seen || !walk->free) {
        walk->failed = true;
        return;
    }
    memset(walk->seen, 0, walk->n_pages / 8 + 1);
    memset(walk->free, 0, walk->n_pages / 8 + 1);
    free_whole = walk_db(walk, DB_FREE, &walk->meta.dbs[0]);
    if (walk->free_beyond != walk->meta.last + 1 - walk->n_pages) {
        cn_lmdb_problem(walk, "the file ends at page %" PRIu64 " of %" PRIu64, walk->n_pages,
                        walk->meta.last);
        free_whole = false;
    }
    trees_whole = walk_db(walk, DB_MAIN, &walk->meta.dbs[1]);
    if (!walk->stopped && walk->has_pieces)
        trees_whole = walk_db(walk, DB_PIECES, &walk->pieces) && trees_whole;
    if (walk->receiver) {
        if (report->free_known && !report->keys_known)
            search_pages(walk);
        return;
    }
    report->pages = walk->n_pages;
    report->keys_known = report->keys_known && trees_whole;
    report->values_sure = report->values_sure && (free_whole || trees_whole);
    report->free_known = report->free_known && free_whole && !walk->overlaps;
    if (walk->sealed == 0 && !walk->has_pieces && free_whole && walk->entries > 0)
        report->foreign = true; /* another program's file */
}

static int
run(struct walk *walk, struct cn_error *err)
{
    struct stat stat;

    cn_buf_init(&walk->big, 0);
    if (fstat(walk->fd, &stat) != 0)
        return cn_fail_sys(err, CN_E_STATE_STORE, errno, "cannot read data.mdb");
    walk->file_bytes = (uint64_t)stat.st_size;
    if (walk->file_bytes > 0 && metas_read(walk))
        walk_all(walk);
    for (unsigned i = 0; i < DEPTH_MAX; i++)
        cn_free(walk->pages[i]);
    cn_free(walk->seen);
    cn_free(walk->free);
    cn_buf_fini(&walk->big);
    return walk->failed ? cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory to check data.mdb")
                        : 0;
}

int
cn_lmdb_check(int fd, struct cn_lmdb_report *out, struct cn_error *err)
{
    struct walk walk = {.fd = fd, .report = out};
    int rc;

    *out = (struct cn_lmdb_report){.keys_known = true, .values_sure = true, .free_known = true};
    cn_buf_init(&out->text, 0);
    if ((rc = run(&walk, err)) != 0)
        return rc;
    if (out->lost_values > 0)
        cn_buf_printf(&out->text, "%s%" PRIu64 " values are altered", out->text.len ? "; " : "",
                      out->lost_values);
    out->whole = out->problems == 0 && out->lost_values == 0;
    return 0;
}

int
cn_lmdb_visit(int fd, const struct cn_lmdb_report *report, const struct cn_lmdb_receiver *receiver,
              struct cn_error *err)
{
    struct cn_lmdb_report copy = *report;
    struct walk walk = {.fd = fd, .report = &copy, .receiver = receiver};

    return run(&walk, err);
}

void
cn_lmdb_report_fini(struct cn_lmdb_report *report)
{
    cn_buf_fini(&report->text);
}
