/* management/models/unpacked.c - unpacked archives, kept from one start to the next. File thread.
 *
 * To unpack a large archive takes long, so a start takes over what the last one unpacked. Beside
 * each folder lies a note NAME.whole, which is written last and removed first. A folder without a
 * note is half done and is removed. The note names the archive, its stamp, the folder's stamp and
 * the boot id; a folder is taken over only if all of them still fit. After a reboot the files may
 * be torn, because they are not flushed, so nothing is taken over.
 */
#include "management/models/unpacked.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "archiver/archive/archive.h"
#include "core/containers/list.h"
#include "core/log/log.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "management/repository/model_store.h"

#define NOTE_MAX 4400 /* bound for a note: a path, a boot id and two stamps */
#define ENDING ".whole"

struct folder {
    struct cn_list link;
    char *place;
    char *archive;
    uint64_t archive_stamp, stamp;
};

struct cn_unpacked {
    char *path, *boot_id;
    struct cn_list kept; /* struct folder of the last start that were not taken yet */
};

static char *
joined(const char *a, const char *separator, const char *b)
{
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    cn_buf_printf(&buf, "%s%s%s", a, separator, b);
    return cn_buf_take(&buf, NULL);
}

void
cn_unpacked_remove(const char *place)
{
    char *note = joined(place, "", ENDING);

    unlink(note); /* the note first: a folder without one is half done */
    cn_archive_remove_dir(place);
    cn_free(note);
}

static void
folder_free(struct folder *folder)
{
    cn_list_remove(&folder->link);
    cn_free(folder->place);
    cn_free(folder->archive);
    cn_free(folder);
}

/* --- what the last start left */

/* Reads a note, "BOOT-ID ARCHIVE-STAMP STAMP ARCHIVE\n". NULL: it is missing, cut or of another
 * boot. */
static struct folder *
read_note(const struct cn_unpacked *unpacked, const char *place)
{
    char text[NOTE_MAX], boot_id[64], *end, *path = joined(place, "", ENDING);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), at = 0;
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    struct folder *folder = NULL;
    uint64_t archive_stamp, stamp;

    if (fd >= 0)
        close(fd);
    cn_free(path);
    if (n <= 0)
        return NULL;
    text[n] = '\0';
    end = strchr(text, '\n');
    if (!end ||
        sscanf(text, "%63s %" SCNx64 " %" SCNx64 " %n", boot_id, &archive_stamp, &stamp, &at) != 3)
        return NULL;
    *end = '\0';
    if (at == 0 || !text[at] || strcmp(boot_id, unpacked->boot_id) != 0)
        return NULL;
    folder = cn_alloc(sizeof *folder);
    cn_list_init(&folder->link);
    folder->place = cn_strdup(place);
    folder->archive = cn_strdup(text + at);
    folder->archive_stamp = archive_stamp;
    folder->stamp = stamp;
    return folder;
}

static bool
is_note(const char *name)
{
    size_t len = strlen(name);

    return len > strlen(ENDING) && strcmp(name + len - strlen(ENDING), ENDING) == 0;
}

/* Removes a note whose folder is gone. */
static void
check_note(const char *path)
{
    char *place = cn_strndup(path, strlen(path) - strlen(ENDING));

    if (access(place, F_OK) < 0)
        unlink(path);
    cn_free(place);
}

struct cn_unpacked *
cn_unpacked_open(const char *folder, const char *boot_id)
{
    struct cn_unpacked *unpacked = cn_alloc(sizeof *unpacked);
    DIR *dir = opendir(folder);
    struct dirent *entry;

    unpacked->path = cn_strdup(folder);
    unpacked->boot_id = cn_strdup(boot_id);
    cn_list_init(&unpacked->kept);
    while (dir && (entry = readdir(dir))) {
        char *path = joined(folder, "/", entry->d_name);
        struct folder *kept = NULL;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            ;
        else if (is_note(entry->d_name))
            check_note(path);
        else if (*boot_id && (kept = read_note(unpacked, path)))
            cn_list_push_back(&unpacked->kept, &kept->link);
        else
            cn_unpacked_remove(path);
        cn_free(path);
    }
    if (dir)
        closedir(dir);
    return unpacked;
}

void
cn_unpacked_close(struct cn_unpacked *unpacked)
{
    struct cn_list *node, *next;

    if (!unpacked)
        return;
    cn_list_for_each_safe(node, next, &unpacked->kept)
        folder_free(cn_container_of(node, struct folder, link));
    cn_free(unpacked->path);
    cn_free(unpacked->boot_id);
    cn_free(unpacked);
}

/* --- use */

/* Renames the folder and its note. Nothing else changes, so the folder's stamp stays the same. */
static bool
move(const struct folder *folder, const char *place)
{
    char *from = joined(folder->place, "", ENDING), *to = joined(place, "", ENDING);
    bool moved = rename(folder->place, place) == 0;

    if (moved)
        rename(from, to);
    cn_free(from);
    cn_free(to);
    return moved;
}

bool
cn_unpacked_take(struct cn_unpacked *unpacked, const char *archive, uint64_t stamp,
                 const char *place)
{
    struct cn_list *node, *next;
    bool taken = false;

    cn_list_for_each_safe(node, next, &unpacked->kept) {
        struct folder *folder = cn_container_of(node, struct folder, link);

        if (taken || strcmp(folder->archive, archive) != 0)
            continue;
        taken = folder->archive_stamp == stamp &&
                cn_model_store_stamp(folder->place) == folder->stamp && move(folder, place);
        if (!taken)
            cn_unpacked_remove(folder->place);
        folder_free(folder);
    }
    return taken;
}

void
cn_unpacked_note(struct cn_unpacked *unpacked, const char *archive, uint64_t stamp,
                 const char *place)
{
    char text[NOTE_MAX], *path;
    int fd, n;

    n = snprintf(text, sizeof text, "%s %016" PRIx64 " %016" PRIx64 " %s\n", unpacked->boot_id,
                 stamp, cn_model_store_stamp(place), archive);
    if (!*unpacked->boot_id || strchr(archive, '\n') || n < 0 || (size_t)n >= sizeof text)
        return;
    path = joined(place, "", ENDING);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 && write(fd, text, (size_t)n) != n)
        unlink(path); /* no space: the archive is unpacked again next time */
    if (fd >= 0)
        close(fd);
    cn_free(path);
}

bool
cn_unpacked_remove_rest(struct cn_unpacked *unpacked)
{
    struct cn_list *node, *next;
    bool any = !cn_list_empty(&unpacked->kept);

    cn_list_for_each_safe(node, next, &unpacked->kept) {
        struct folder *folder = cn_container_of(node, struct folder, link);

        cn_log(CN_LOG_INFO, "event=unpacked_removed archive=%s", folder->archive);
        cn_unpacked_remove(folder->place);
        folder_free(folder);
    }
    return any;
}
