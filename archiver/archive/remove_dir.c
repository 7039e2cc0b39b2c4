/* archiver/archive/remove_dir.c - deletes a folder and all that is in it.
 *
 * The code of a model may have written into the folder, and a process of it may still run. If paths
 * were used here, that process could put a link in the place of a folder on the way, and the server
 * would delete files elsewhere. So each folder is opened without following links, and what is in it
 * is deleted relative to its descriptor. The modes of folders are the model's, too: a folder whose
 * mode would keep the server out is opened up first.
 *
 * A folder that lies deeper than DEPTH_MAX is first moved up to the top, so that the number of open
 * descriptors is bounded. Other file systems that are mounted below are left alone. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archiver/archive/archive.h"

#define DEPTH_MAX 32
#define PASSES_MAX 100000 /* over the top, for folders that were moved there */

struct removal {
    int top;
    dev_t device;
    unsigned n_moved;
};

static void empty(struct removal *removal, int folder, unsigned depth);

/* Gives the server all rights in a folder below `parent`, and returns whether it is one that may be
 * emptied. A folder that is put into its place afterwards belongs to the model as well. */
static bool
open_up(const struct removal *removal, int parent, const char *name)
{
    struct stat st;

    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))
        return false;
    if (st.st_dev == removal->device && (st.st_mode & 0700) != 0700)
        (void)!fchmodat(parent, name, 0700, AT_SYMLINK_NOFOLLOW); /* else it cannot be opened */
    return true;
}

/* Deletes an entry that is not a file. */
static void
remove_folder(struct removal *removal, int parent, const char *name, unsigned depth)
{
    char up[32];
    struct stat st;
    int folder;

    if (!open_up(removal, parent, name))
        return;
    if (depth >= DEPTH_MAX) {
        snprintf(up, sizeof(up), "moved-up-%u", ++removal->n_moved);
        renameat(parent, name, removal->top, up);
        return;
    }
    folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return;
    if (fstat(folder, &st) == 0 && st.st_dev == removal->device)
        empty(removal, folder, depth + 1);
    else
        close(folder);
    unlinkat(parent, name, AT_REMOVEDIR);
}

/* Deletes what is in the folder, as far as it can be deleted, and closes the descriptor. */
static void
empty(struct removal *removal, int folder, unsigned depth)
{
    DIR *entries = fdopendir(folder);
    struct dirent *entry;

    if (!entries) {
        close(folder);
        return;
    }
    while ((entry = readdir(entries)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlinkat(folder, entry->d_name, 0) != 0)
            remove_folder(removal, folder, entry->d_name, depth);
    closedir(entries);
}

bool
cn_archive_empty_dir(const char *dest)
{
    struct removal removal = {0};
    struct stat st;
    unsigned before, passes = 0;

    if (lstat(dest, &st) == 0)
        removal.device = st.st_dev;
    open_up(&removal, AT_FDCWD, dest);
    removal.top = open(dest, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (removal.top < 0)
        return false;
    if (fstat(removal.top, &st) == 0) {
        removal.device = st.st_dev;
        do {
            before = removal.n_moved;
            empty(&removal, openat(removal.top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0);
        } while (removal.n_moved > before && ++passes < PASSES_MAX);
    }
    close(removal.top);
    return true;
}

void
cn_archive_remove_dir(const char *dest)
{
    if (cn_archive_empty_dir(dest))
        rmdir(dest);
    else
        unlink(dest); /* a file or a link */
}
