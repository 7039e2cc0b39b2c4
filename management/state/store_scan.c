/* management/state/store_scan.c - what the disk says about stores. It has no state.
 *
 * A scan is a list of stores. The caller adds those that are in use; cn_store_scan_look() reads
 * their inodes and reports, and cn_store_scan_all() also finds all others in the state folder and
 * measures them. The sequences of a store are counted by a run of the worker program, because the
 * server does not open LMDB files itself.
 */
#include "management/state/store_scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "management/state/state_dir.h"
#include "management/state/state_dir_priv.h"

#define REPORT_MAX 2000
#define SAID_MAX 4096 /* bound for what the worker program prints */

void
cn_store_scan_fini(struct cn_store_scan *scan)
{
    for (unsigned i = 0; i < scan->n; i++) {
        cn_free(scan->entries[i].path);
        cn_free(scan->entries[i].report);
    }
    cn_free(scan->entries);
    scan->entries = NULL;
    scan->n = scan->cap = 0;
}

static struct cn_store_entry *
add(struct cn_store_scan *scan, const char *path)
{
    struct cn_store_entry *entry;

    if (scan->n == scan->cap) {
        scan->cap = scan->cap ? scan->cap * 2 : 8;
        scan->entries = cn_try_realloc(scan->entries, scan->cap * sizeof *scan->entries);
        if (!scan->entries)
            cn_panic(__FILE__, __LINE__, "not enough memory for a list of %u stores", scan->cap);
    }
    entry = &scan->entries[scan->n++];
    *entry = (struct cn_store_entry){.path = cn_strdup(path)};
    return entry;
}

void
cn_store_scan_add(struct cn_store_scan *scan, const char *path)
{
    add(scan, path)->in_use = true;
}

uint64_t
cn_store_inode(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? (uint64_t)st.st_ino : 0;
}

/* Reads the file DAMAGED of a store: "lost N", "suspect 0 or 1", then sentences. They become one
 * line, with semicolons between them. The code of the model may write in the folder, too. Reading a
 * pipe of that name would never end, and a link could show any file, so neither is read; both
 * count as a report of damage that says nothing. */
void
cn_store_read_report(struct cn_store_entry *entry)
{
    char *path = cn_state_path(entry->path, CN_STORE_REPORT), text[REPORT_MAX + 1], *said;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    ssize_t n = 0;

    cn_free(path);
    cn_free(entry->report);
    entry->report = NULL;
    if (fd < 0 && errno != ELOOP)
        return;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        n = read(fd, text, REPORT_MAX);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    entry->suspect = true; /* what holds for a file that says nothing */
    entry->lost = 0;
    if (strncmp(text, "lost ", 5) == 0)
        entry->lost = strtoull(text + 5, NULL, 10);
    if ((said = strstr(text, "\nsuspect ")) != NULL)
        entry->suspect = said[9] != '0';
    said = said && (said = strchr(said + 1, '\n')) != NULL ? said + 1 : text;
    for (n = (ssize_t)strlen(said); n > 0 && said[n - 1] == '\n'; n--)
        said[n - 1] = '\0';
    for (char *at = said; (at = strchr(at, '\n')) != NULL;)
        *at = ';';
    entry->report = cn_strdup(*said ? said : "the report is empty");
}

static void
look(struct cn_store_entry *entry)
{
    entry->inode = cn_store_inode(entry->path);
    cn_store_read_report(entry);
}

void
cn_store_scan_look(struct cn_store_scan *scan)
{
    scan->state_inode = cn_store_inode(scan->root);
    for (unsigned i = 0; i < scan->n; i++)
        look(&scan->entries[i]);
}

static void
measure(struct cn_store_entry *entry)
{
    DIR *dir = opendir(entry->path);
    struct dirent *file;
    struct stat st;

    while (dir && (file = readdir(dir)))
        if (fstatat(dirfd(dir), file->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            entry->bytes += (uint64_t)st.st_blocks * 512;
    if (dir)
        closedir(dir);
}

static bool
has(const struct cn_store_scan *scan, unsigned n, const char *path)
{
    for (unsigned i = 0; i < n; i++)
        if (strcmp(scan->entries[i].path, path) == 0)
            return true;
    return false;
}

static void
scan_model(struct cn_store_scan *scan, unsigned n_known, const char *model)
{
    DIR *dir = opendir(model);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        char *path;

        if (entry->d_name[0] == '.')
            continue;
        path = cn_state_path(model, entry->d_name);
        if (cn_store_inode(path) && !has(scan, n_known, path))
            add(scan, path)->is_set_aside = strstr(entry->d_name, CN_STATE_BAD) != NULL;
        cn_free(path);
    }
    if (dir)
        closedir(dir);
}

static int
compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct cn_store_entry *)a)->path,
                  ((const struct cn_store_entry *)b)->path);
}

void
cn_store_scan_all(struct cn_store_scan *scan)
{
    char *models = cn_state_path(scan->root, "models"), *model;
    DIR *dir = opendir(models);
    unsigned n_known = scan->n;
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        model = cn_state_path(models, entry->d_name);
        scan_model(scan, n_known, model);
        cn_free(model);
    }
    if (dir)
        closedir(dir);
    cn_free(models);
    cn_store_scan_look(scan);
    for (unsigned i = 0; i < scan->n; i++)
        measure(&scan->entries[i]);
    if (scan->n)
        qsort(scan->entries, scan->n, sizeof *scan->entries, compare_entries);
}

void
cn_store_scan_count(struct cn_store_entry *entry, const char *worker_program)
{
    char said[SAID_MAX];
    const char *at;
    unsigned long long live;

    if (cn_state_run_worker(worker_program, "--check-store", entry->path, said, sizeof said) < 0)
        return;
    at = strstr(said, ": ");
    if (strstr(said, ": empty"))
        entry->has_sequences = true;
    else if (at && sscanf(at, ": %llu live", &live) == 1) {
        entry->has_sequences = true;
        entry->sequences = live;
    }
}
