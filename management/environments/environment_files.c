/* management/environments/environment_files.c - environments on the disk. File thread.
 *
 * Packages are not flushed while pip writes them, so before the note is written the whole file
 * system is flushed: a power cut then leaves either no note, or a whole environment.
 *
 * A folder of environments looks like this, with a folder and a note for each one:
 *   1f3a9c0d52e87b64-5b2f90c1/   the venv: 16 digits of the digest, and a random number
 *   1f3a9c0d52e87b64...e1.whole  the note, whose name is the whole digest
 * The note's first line is the folder's name, and the recipe follows for people who want to know
 * what is in it. It is written last and removed first, so a folder without a note is half made or
 * half removed, and goes at the next start. The random number lets a new environment be made while
 * the old one with the same digest is being removed. */
#include "management/environments/environment_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archiver/archive/archive.h"
#include "core/log/log.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "core/system/random.h"
#include "core/system/write_file.h"

#define ENDING ".whole"
#define NEW_ENDING ".new"
#define DIGEST_LEN (CN_ENVIRONMENT_DIGEST_BYTES - 1)
/* digits of the digest in a folder's name; few, so that paths of packages stay short */
#define NAME_DIGITS 16

static char *
path_of(const char *folder, const char *name, const char *ending)
{
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    cn_buf_printf(&buf, "%s/%s%s", folder, name, ending);
    return cn_buf_take(&buf, NULL);
}

char *
cn_environment_files_python(const char *place)
{
    return path_of(place, "bin/python", "");
}

char *
cn_environment_files_place(const char *folder, const char *digest)
{
    struct cn_buf name;
    char *place;

    mkdir(folder, 0700); /* if this fails, the installer says what is wrong */
    cn_buf_init(&name, 0);
    cn_buf_printf(&name, "%.*s-%08x", NAME_DIGITS, digest, (unsigned)cn_random_u64());
    cn_buf_append(&name, "", 1);
    place = path_of(folder, name.data, "");
    cn_buf_fini(&name);
    return place;
}

/* --- what an earlier server left */

static bool
is_digest(const char *name)
{
    return strlen(name) == DIGEST_LEN + strlen(ENDING) &&
           strspn(name, "0123456789abcdef") == DIGEST_LEN && strcmp(name + DIGEST_LEN, ENDING) == 0;
}

/* The folder's name in a note; empty: the note cannot be read. It must not lead elsewhere. */
static void
read_note(const char *path, char name[NAME_MAX + 1])
{
    FILE *file = fopen(path, "re");

    name[0] = '\0';
    if (!file)
        return;
    if (!fgets(name, NAME_MAX + 1, file))
        name[0] = '\0';
    name[strcspn(name, "\n")] = '\0';
    if (strchr(name, '/') || name[0] == '.')
        name[0] = '\0';
    fclose(file);
}

static void
take_note(const char *folder, const char *note, struct cn_environments_left *out)
{
    char *path = path_of(folder, note, ""), name[NAME_MAX + 1], *place, *python;
    struct cn_environment_left *left;

    read_note(path, name);
    place = path_of(folder, name, "");
    python = cn_environment_files_python(place);
    if (!name[0] || access(python, X_OK) < 0 || out->n == CN_ENVIRONMENTS_LEFT_MAX) {
        cn_log(CN_LOG_INFO, "event=environment_dropped note=%s", note);
        unlink(path); /* its interpreter is gone, or it has no folder */
        cn_free(place);
    } else {
        left = &out->items[out->n++];
        memcpy(left->digest, note, DIGEST_LEN);
        left->digest[DIGEST_LEN] = '\0';
        left->place = place;
    }
    cn_free(python);
    cn_free(path);
}

static bool
is_left(const struct cn_environments_left *left, const char *path)
{
    for (uint32_t i = 0; i < left->n; i++)
        if (strcmp(left->items[i].place, path) == 0)
            return true;
    return false;
}

static bool
is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Removes folders without a note, and notes that were never finished. */
static void
remove_rest(const char *folder, const struct cn_environments_left *left)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        char *path = path_of(folder, entry->d_name, "");

        if (!is_dots(entry->d_name) && !is_digest(entry->d_name) && !is_left(left, path)) {
            cn_log(CN_LOG_INFO, "event=environment_rest_removed name=%s", entry->d_name);
            cn_archive_remove_dir(path);
        }
        cn_free(path);
    }
    if (dir)
        closedir(dir);
}

void
cn_environment_files_scan(const char *folder, struct cn_environments_left *out)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    out->n = 0;
    while (dir && (entry = readdir(dir)))
        if (is_digest(entry->d_name))
            take_note(folder, entry->d_name, out);
    if (dir)
        closedir(dir);
    remove_rest(folder, out);
}

/* --- whole, and gone */

static int
flush(const char *place, struct cn_error *err)
{
    int fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

    if (fd < 0 || syncfs(fd) < 0)
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot flush the environment %s to the disk", place);
    if (fd >= 0)
        close(fd);
    return rc;
}

int
cn_environment_files_seal(const char *folder, const char *digest, const char *place,
                          struct cn_str recipe, struct cn_error *err)
{
    char *note = path_of(folder, digest, ENDING), *beside = path_of(folder, digest, NEW_ENDING);
    const char *slash = strrchr(place, '/');
    int rc = flush(place, err), sys;
    struct cn_buf text;

    cn_buf_init(&text, 0);
    cn_buf_printf(&text, "%s\n%.*s", slash ? slash + 1 : place, CN_STR_ARG(recipe));
    if (!rc) {
        sys = cn_write_file_atomically(note, beside, 0600, text.data, text.len);
        if (sys)
            rc = cn_fail_sys(err, CN_E_IO, sys, "cannot write %s", note);
    }
    cn_buf_fini(&text);
    cn_free(beside);
    cn_free(note);
    return rc;
}

void
cn_environment_files_remove(const char *folder, const char *digest, const char *place)
{
    char *note = path_of(folder, digest, ENDING), name[NAME_MAX + 1];
    const char *slash = strrchr(place, '/');

    read_note(note, name);
    if (slash && strcmp(name, slash + 1) == 0)
        unlink(note); /* the note first: a folder without one is half done */
    cn_archive_remove_dir(place);
    cn_free(note);
}
