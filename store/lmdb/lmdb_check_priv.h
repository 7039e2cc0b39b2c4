/* store/lmdb/lmdb_check_priv.h - the walk through an LMDB file, and reading of its pages. */
#ifndef CN_STORE_LMDB_LMDB_CHECK_PRIV_H
#define CN_STORE_LMDB_LMDB_CHECK_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "store/lmdb/lmdb_check.h"
#include "store/record/little_endian.h"

#define HEADER_BYTES 16u
#define DEPTH_MAX 32u /* LMDB's CURSOR_STACK */

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

static inline bool
cn_lmdb_bit_get(const unsigned char *bits, uint64_t page)
{
    return bits[page / 8] >> (page % 8) & 1;
}

static inline void
cn_lmdb_bit_set(unsigned char *bits, uint64_t page)
{
    bits[page / 8] |= (unsigned char)(1u << (page % 8));
}

static inline unsigned
cn_lmdb_node_count(const char *page)
{
    return (get16(page + 12) - HEADER_BYTES) / 2;
}

/* What errors call a database, by `enum which`. */
extern const char *const cn_lmdb_db_names[];

/* Counts a problem, and keeps the sentence if it is one of the first. Does nothing in the second
 * walk. */
__attribute__((format(printf, 2, 3))) void cn_lmdb_problem(struct walk *walk, const char *fmt, ...);
/* Reads bytes of the file. False: they are not there. */
bool cn_lmdb_read_at(struct walk *walk, char *out, size_t len, uint64_t at);
/* Marks a page that another page names as seen. False, after noting a problem: the page cannot be
 * in use there. */
bool cn_lmdb_page_take(struct walk *walk, uint64_t page);
/* Reads a page, whose header must have this number and kind. */
bool cn_lmdb_page_read(struct walk *walk, uint64_t page, unsigned kind, char *out);
/* A page is sound if its nodes take exactly the bytes between `upper` and the end of the page. */
bool cn_lmdb_page_is_sound(const struct walk *walk, const char *page, bool leaf);
/* Are the keys in order and within the bounds? The first key of a branch is not used. */
bool cn_lmdb_keys_are_in_order(const struct walk *walk, const char *page, bool leaf,
                               const struct bounds *bounds);
/* Reads node `i` of a page. `bytes` is 0 if its offset or its lengths are not within the page. */
struct node cn_lmdb_node_at(const struct walk *walk, const char *page, unsigned i, bool leaf);
/* Reads a value from its overflow pages into walk->big. */
bool cn_lmdb_big_read(struct walk *walk, const struct node *node);

#endif
