/* develop/folder_files.c - the files of a model's folder, and which of them build.sh makes. One
 * thread.
 *
 * A change of a file means that the folder must be built again. But a file that changes while
 * build.sh runs may be one that build.sh makes, or one that the author has just saved; nothing in
 * the file tells which. If it was taken for the author's each time, a build.sh that makes any file
 * would run for ever. So such a change causes one more run. What changes again in that run is made
 * by build.sh. When the author changes such a file later, while nothing is built, that counts like
 * every other change, because the list from the end of the last run has the file, too. */
#include "develop/folder_files.h"

#include <dirent.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/memory/mem.h"

#define HASH_BEGIN 14695981039346656037u /* FNV-1a */
#define HASH_TIMES 1099511628211u

struct cn_folder_file {
    uint64_t name, sum; /* hashes of its name, and of its size and time */
    bool built;         /* it changed while build.sh ran last */
    bool made;          /* build.sh makes it */
};

static uint64_t
mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * HASH_TIMES;
}

static bool
counts(const char *name)
{
    return name[0] != '.' && !strchr(name, '~') && strcmp(name, "__pycache__") != 0 &&
           strcmp(name, "test.yaml") != 0 && strcmp(name, "README.md") != 0;
}

static int
compare_names(const void *a, const void *b)
{
    const uint64_t one = ((const struct cn_folder_file *)a)->name;
    const uint64_t other = ((const struct cn_folder_file *)b)->name;

    return (one > other) - (one < other);
}

static struct cn_folder_file *
find(const struct cn_folder_files *files, uint64_t name)
{
    const struct cn_folder_file wanted = {.name = name};

    return files->n ? bsearch(&wanted, files->at, files->n, sizeof *files->at, compare_names)
                    : NULL;
}

static void
add(struct cn_folder_files *files, size_t *room, const char *name, const struct stat *st)
{
    struct cn_folder_file file = {.name = HASH_BEGIN, .sum = HASH_BEGIN}, *more;

    if (files->n == *room) {
        *room = *room ? *room * 2 : 32;
        more = cn_alloc(*room * sizeof *more);
        if (files->n)
            memcpy(more, files->at, files->n * sizeof *more);
        cn_free(files->at);
        files->at = more;
    }
    for (; *name; name++)
        file.name = mix(file.name, (unsigned char)*name);
    file.sum = mix(file.sum, (uint64_t)st->st_size);
    file.sum = mix(file.sum, (uint64_t)st->st_mtim.tv_sec);
    file.sum = mix(file.sum, (uint64_t)st->st_mtim.tv_nsec);
    files->at[files->n++] = file;
}

void
cn_folder_files_list(const char *path, struct cn_folder_files *out)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    struct stat st;
    size_t room = 0;

    *out = (struct cn_folder_files){0};
    while (dir && (entry = readdir(dir)))
        if (counts(entry->d_name) && fstatat(dirfd(dir), entry->d_name, &st, 0) == 0)
            add(out, &room, entry->d_name, &st);
    if (dir)
        closedir(dir);
    if (out->n)
        qsort(out->at, out->n, sizeof *out->at, compare_names);
}

void
cn_folder_files_fini(struct cn_folder_files *files)
{
    cn_free(files->at);
    *files = (struct cn_folder_files){0};
}

bool
cn_folder_files_differ(const struct cn_folder_files *a, const struct cn_folder_files *b)
{
    if (a->n != b->n)
        return true;
    for (size_t i = 0; i < a->n; i++)
        if (a->at[i].name != b->at[i].name || a->at[i].sum != b->at[i].sum)
            return true;
    return false;
}

bool
cn_folder_files_built(struct cn_folder_files *after, const struct cn_folder_files *before,
                      const struct cn_folder_files *last, bool again)
{
    bool others = false;

    for (size_t i = 0; i < after->n; i++) {
        struct cn_folder_file *file = &after->at[i];
        const struct cn_folder_file *then = find(before, file->name);
        const struct cn_folder_file *known = find(last, file->name);

        file->built = !then || then->sum != file->sum;
        file->made = file->built && known && (known->made || (again && known->built));
        others |= file->built && !file->made;
    }
    return others;
}
