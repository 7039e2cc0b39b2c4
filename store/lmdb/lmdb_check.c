/* store/lmdb/lmdb_check.c - walks through an LMDB file page by page. lmdb_check.h says what is
 * checked, and why a whole entry in a page that is not free is the newest one.
 *
 * The rule of this file: every number that is read may be any number, so none is used as an offset,
 * a length or a page number before it was compared with the page or the file. Two functions carry
 * that: page_take accepts a page number only once and only in range, and page_is_sound checks a
 * page as a whole, so that what node_at returns of a sound page lies within it. The fuzz target of
 * this file checks that.
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
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "store/lmdb/lmdb_seal.h"
#include "store/store.h"

#define MAGIC 0xbeefc0deu
#define DATA_VERSION 1u
#define HEADER_BYTES 16u
#define META_BYTES 136u
#define DB_BYTES 48u
#define NODE_BYTES 8u
#define DEPTH_MAX 32u /* LMDB's CURSOR_STACK */
#define PAGE_BYTES_MIN 512u
#define PAGE_BYTES_MAX 32768u
#define FREE_DB_FLAGS 8u /* MDB_INTEGERKEY */
#define NO_PAGE UINT64_MAX
#define PROBLEMS_SHOWN 4

enum page_flag {
    PAGE_BRANCH = 1,
    PAGE_LEAF = 2,
    PAGE_OVERFLOW = 4,
    PAGE_META = 8,
    PAGE_KINDS = 0x6f, /* also those of databases with duplicates, which a store does not have */
};

enum node_flag {
    NODE_BIG = 1,      /* the value is in overflow pages */
    NODE_DATABASE = 2, /* the value is the head of a database */
};

enum which {
    DB_FREE,
    DB_MAIN,
    DB_PIECES,
};

static const char *const db_names[] = {"the list of free pages", "the main database",
                                       "the database of pieces"};

struct db {
    uint16_t flags, depth;
    uint64_t entries, root;
};

struct meta {
    uint32_t page_bytes;
    uint64_t map_bytes, last, txn;
    struct db dbs[2];
};

struct node {
    uint16_t flags;
    struct cn_str key, value; /* a branch's node has no value */
    uint64_t child;           /* of a branch's node; of a leaf's node the first overflow page */
    uint64_t value_bytes;
    size_t bytes; /* the bytes that it takes in the page */
};

/* The keys of a page are not below `low`, and are below `high`; ptr NULL: there is no such bound.
 */
struct bounds {
    struct cn_str low, high;
};

struct walk {
    int fd;
    uint64_t file_pages, file_bytes;
    struct meta meta;
    uint64_t n_pages;           /* the pages that can be read */
    unsigned char *seen, *free; /* a bit for each page */
    uint64_t free_beyond;       /* the number of free pages behind the end of the file */
    char *pages[DEPTH_MAX];     /* one page for each level of the tree */
    struct cn_buf big;          /* the last value that was read from overflow pages */
    enum which which;
    uint64_t entries, sealed;
    struct db pieces;
    bool has_pieces, overlaps, stopped, failed;
    struct cn_lmdb_report *report;
    const struct cn_lmdb_receiver *receiver; /* NULL in the first walk */
};

/* --- problems --- */

__attribute__((format(printf, 2, 3))) static void
problem(struct walk *walk, const char *fmt, ...)
{
    struct cn_lmdb_report *report = walk->report;
    char text[200];
    va_list args;

    if (walk->receiver || report->problems++ >= PROBLEMS_SHOWN)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    cn_buf_printf(&report->text, "%s%s", report->text.len ? "; " : "", text);
}

/* --- bits and pages --- */

static bool
bit_get(const unsigned char *bits, uint64_t page)
{
    return bits[page / 8] >> (page % 8) & 1;
}

static void
bit_set(unsigned char *bits, uint64_t page)
{
    bits[page / 8] |= (unsigned char)(1u << (page % 8));
}

/* Marks a page that another page names as seen. False, after noting a problem: the page cannot be
 * in use there. */
static bool
page_take(struct walk *walk, uint64_t page)
{
    if (page < 2 || page > walk->meta.last || page >= walk->n_pages) {
        problem(walk, "%s names page %" PRIu64 ", which is not there", db_names[walk->which], page);
        return false;
    }
    if (bit_get(walk->seen, page)) {
        problem(walk, "page %" PRIu64 " is in use twice", page);
        return false;
    }
    if (bit_get(walk->free, page)) {
        problem(walk, "page %" PRIu64 " is in use and free", page);
        walk->overlaps = true;
        return false;
    }
    bit_set(walk->seen, page);
    return true;
}

static bool
read_at(struct walk *walk, char *out, size_t len, uint64_t at)
{
    while (len > 0) {
        ssize_t n = pread(walk->fd, out, len, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        out += n;
        len -= (size_t)n;
        at += (uint64_t)n;
    }
    return true;
}

/* Reads a page, whose header must have this number and kind. */
static bool
page_read(struct walk *walk, uint64_t page, unsigned kind, char *out)
{
    if (!read_at(walk, out, walk->meta.page_bytes, page * walk->meta.page_bytes)) {
        problem(walk, "page %" PRIu64 " cannot be read", page);
        return false;
    }
    if (get64(out) != page || (get16(out + 10) & PAGE_KINDS) != kind) {
        problem(walk, "page %" PRIu64 " is overwritten", page);
        return false;
    }
    return true;
}

static unsigned
node_count(const char *page)
{
    return (get16(page + 12) - HEADER_BYTES) / 2;
}

/* Reads node `i` of a page. `bytes` is 0 if its offset or its lengths are not within the page. */
static struct node
node_at(const struct walk *walk, const char *page, unsigned i, bool leaf)
{
    const size_t end = walk->meta.page_bytes, at = get16(page + HEADER_BYTES + 2 * (size_t)i);
    struct node node = {0};
    const char *head = page + at;
    size_t bytes;

    if (at % 2 != 0 || at < get16(page + 14) || at + NODE_BYTES > end)
        return node;
    node.flags = get16(head + 4);
    node.key = (struct cn_str){head + NODE_BYTES, get16(head + 6)};
    node.value_bytes = get32(head);
    bytes = NODE_BYTES + node.key.len;
    if (!leaf)
        node.child = node.value_bytes | (uint64_t)node.flags << 32;
    else if (node.flags & NODE_BIG)
        bytes += 8;
    else if (node.value_bytes > end)
        return node;
    else
        bytes += node.value_bytes;
    if (at + bytes > end)
        return node;
    if (leaf && node.flags & NODE_BIG)
        node.child = get64(node.key.ptr + node.key.len);
    else if (leaf)
        node.value = (struct cn_str){node.key.ptr + node.key.len, node.value_bytes};
    node.bytes = (bytes + 1) & ~(size_t)1;
    return node;
}

/* A page is sound if its nodes take exactly the bytes between `upper` and the end of the page. */
static bool
page_is_sound(const struct walk *walk, const char *page, bool leaf)
{
    const unsigned lower = get16(page + 12), upper = get16(page + 14);
    size_t used = 0;

    if (lower < HEADER_BYTES + 2 || lower % 2 != 0 || lower > upper ||
        upper > walk->meta.page_bytes)
        return false;
    for (unsigned i = 0; i < node_count(page); i++) {
        const struct node node = node_at(walk, page, i, leaf);

        if (node.bytes == 0)
            return false;
        used += node.bytes;
    }
    return used == walk->meta.page_bytes - upper;
}

static int
key_compare(const struct walk *walk, struct cn_str a, struct cn_str b)
{
    int order;

    if (walk->which == DB_FREE && a.len == 8 && b.len == 8)
        return (get64(a.ptr) > get64(b.ptr)) - (get64(a.ptr) < get64(b.ptr));
    order = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

/* Are the keys in order and within the bounds? The first key of a branch is not used. */
static bool
keys_are_in_order(const struct walk *walk, const char *page, bool leaf, const struct bounds *bounds)
{
    struct cn_str before = bounds->low;
    bool may_equal = true;

    for (unsigned i = leaf ? 0 : 1; i < node_count(page); i++) {
        const struct cn_str key = node_at(walk, page, i, leaf).key;
        const int order = before.ptr ? key_compare(walk, before, key) : -1;

        if (order > 0 || (order == 0 && !may_equal) ||
            (bounds->high.ptr && key_compare(walk, key, bounds->high) >= 0))
            return false;
        before = key;
        may_equal = false;
    }
    return true;
}

/* --- entries --- */

/* Reads a value from its overflow pages into walk->big. */
static bool
big_read(struct walk *walk, const struct node *node)
{
    const uint64_t size = walk->meta.page_bytes;
    const uint64_t pages = (HEADER_BYTES - 1 + node->value_bytes) / size + 1;
    char head[HEADER_BYTES];

    if (!page_take(walk, node->child))
        return false;
    if (!read_at(walk, head, sizeof(head), node->child * size) || get64(head) != node->child ||
        (get16(head + 10) & PAGE_KINDS) != PAGE_OVERFLOW || get32(head + 12) < pages ||
        get32(head + 12) > walk->n_pages - node->child) {
        problem(walk, "overflow page %" PRIu64 " is overwritten or not there", node->child);
        return false;
    }
    for (uint64_t i = 1; i < get32(head + 12); i++)
        if (!page_take(walk, node->child + i))
            return false;
    cn_buf_reset(&walk->big);
    if (!cn_buf_reserve(&walk->big, node->value_bytes + 1)) {
        walk->failed = walk->stopped = true;
        return false;
    }
    walk->big.len = node->value_bytes;
    if (read_at(walk, walk->big.data, node->value_bytes, node->child * size + HEADER_BYTES))
        return true;
    problem(walk, "page %" PRIu64 " cannot be read", node->child);
    return false;
}

/* Reads an entry of the list of free pages: a u64 count and the page numbers, the highest one
 * first. */
static void
take_free(struct walk *walk, const struct node *node, struct cn_str value)
{
    const uint64_t room = value.len / 8, n = room ? get64(value.ptr) : 0;
    uint64_t before = walk->meta.last + 1;

    if (node->key.len != 8 || get64(node->key.ptr) > walk->meta.txn || value.len % 8 != 0 ||
        room == 0 || n > room - 1) {
        problem(walk, "an entry in the list of free pages is altered");
        return;
    }
    for (uint64_t i = 1; i <= n; i++) {
        const uint64_t page = get64(value.ptr + 8 * i);

        if (page < 2 || page >= before || (page < walk->n_pages && bit_get(walk->free, page))) {
            problem(walk, "the list of free pages is altered");
            return;
        }
        before = page;
        if (page < walk->n_pages)
            bit_set(walk->free, page);
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
        problem(walk, "the head of the database of pieces is altered");
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
    const bool big = node->flags & NODE_BIG, readable = !big || big_read(walk, node);
    const struct cn_str value = big ? cn_buf_str(&walk->big) : node->value;
    enum cn_lmdb_seal seal;

    if (walk->stopped || (readable && is_foreign(walk, node, value)))
        return;
    if ((node->flags & ~NODE_BIG) != 0 || !key_has_its_form(walk->which, node->key)) {
        problem(walk, "a key in %s is altered", db_names[walk->which]);
        return;
    }
    seal = readable ? cn_lmdb_seal_check(node->key, value) : CN_LMDB_SEAL_VALUE;
    walk->sealed += seal != CN_LMDB_SEAL_KEY;
    if (seal == CN_LMDB_SEAL_KEY) {
        problem(walk, "a key in %s, or its checksum, is altered", db_names[walk->which]);
        return;
    }
    if (seal == CN_LMDB_SEAL_VALUE)
        walk->report->lost_values += !walk->receiver;
    show(walk, node->key, seal == CN_LMDB_SEAL_INTACT ? value : (struct cn_str){NULL, 0});
}

static void
take_leaf(struct walk *walk, const char *page)
{
    for (unsigned i = 0; i < node_count(page) && !walk->stopped; i++) {
        const struct node node = node_at(walk, page, i, true);

        walk->entries++;
        if (walk->which == DB_FREE) {
            if (!(node.flags & NODE_BIG))
                take_free(walk, &node, node.value);
            else if (big_read(walk, &node))
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
    if (walk->stopped || !page_take(walk, number) ||
        !page_read(walk, number, leaf ? PAGE_LEAF : PAGE_BRANCH, page))
        return;
    if (!page_is_sound(walk, page, leaf)) {
        problem(walk, "page %" PRIu64 " is damaged", number);
        return;
    }
    if (!keys_are_in_order(walk, page, leaf, &bounds)) {
        problem(walk, "keys of page %" PRIu64 " are not in order", number);
        return;
    }
    if (leaf) {
        take_leaf(walk, page);
        return;
    }
    for (unsigned i = 0; i < node_count(page) && !walk->stopped; i++) {
        struct bounds below = bounds;

        if (i > 0)
            below.low = node_at(walk, page, i, false).key;
        if (i + 1 < node_count(page))
            below.high = node_at(walk, page, i + 1, false).key;
        walk_page(walk, node_at(walk, page, i, false).child, db, level + 1, below);
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
        problem(walk, "the head of %s is altered", db_names[which]);
        return false;
    }
    if (db->root != NO_PAGE)
        walk_page(walk, db->root, db, 0, (struct bounds){{NULL, 0}, {NULL, 0}});
    if (!walk->stopped && walk->entries != db->entries)
        problem(walk, "%s has %" PRIu64 " of %" PRIu64 " entries", db_names[which], walk->entries,
                db->entries);
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
        if (bit_get(walk->seen, i) || bit_get(walk->free, i) ||
            !page_read(walk, i, PAGE_LEAF, page) || !page_is_sound(walk, page, true))
            continue;
        for (unsigned n = 0; n < node_count(page); n++) {
            const struct node node = node_at(walk, page, n, true);

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

    if (!read_at(walk, page, sizeof(page), at))
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
    problem(walk, "a meta page is damaged");
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
        problem(walk, "the file ends at page %" PRIu64 " of %" PRIu64, walk->n_pages,
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
