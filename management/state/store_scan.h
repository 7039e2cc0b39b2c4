/* management/state/store_scan.h - what the disk says about stores. File thread; reports also loop
 * 0. */
#ifndef CN_MANAGEMENT_STATE_STORE_SCAN_H
#define CN_MANAGEMENT_STATE_STORE_SCAN_H

#include <stdbool.h>
#include <stdint.h>

struct cn_store_entry {
    char *path;
    bool in_use, is_set_aside;
    uint64_t inode; /* inode of the folder; 0: it does not exist */
    uint64_t bytes; /* on the disk */
    bool has_sequences;
    uint64_t sequences;
    char *report; /* what the file DAMAGED says is wrong, in one line; NULL: there is none */
    uint64_t lost;
    bool suspect;
};

struct cn_store_scan {
    const char *root;     /* the state folder */
    uint64_t state_inode; /* inode of the state folder now */
    struct cn_store_entry *entries;
    unsigned n, cap;
};

void cn_store_scan_fini(struct cn_store_scan *scan);
/* Adds a store in use. */
void cn_store_scan_add(struct cn_store_scan *scan, const char *path);
/* Reads the inodes and reports of the stores that were added. */
void cn_store_scan_look(struct cn_store_scan *scan);
/* Also finds all other stores, and measures each of them. */
void cn_store_scan_all(struct cn_store_scan *scan);
/* Counts the sequences of an unused store. */
void cn_store_scan_count(struct cn_store_entry *entry, const char *worker_program);

/* The inode of a folder; 0: it does not exist. */
uint64_t cn_store_inode(const char *path);
/* Fills in `report`, `lost` and `suspect`. */
void cn_store_read_report(struct cn_store_entry *entry);

#endif
