/* store/journal/journal_space.c - the two files of a journal and their ledgers: opened, mapped, and
 * given room. Owned by the worker's thread.
 *
 * - A file is written with pwrite and read through a mapping, which the kernel keeps equal. The
 *   mapping is read-only, so that a stray pointer of a handler cannot damage the store.
 * - Room in the file system is allocated before it is written, so a full disk is met by the commit
 *   that wanted to grow the store, and never by a drain. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/journal/journal_priv.h"

static int
file_map(struct cn_journal_store *js, struct cn_journal_file *file, uint64_t bytes,
         struct cn_error *err)
{
    uint64_t wanted = bytes < js->limit ? js->limit : bytes;
    void *map;

    if (file->fd < 0 || bytes <= file->map_bytes)
        return 0;
    wanted = (wanted + wanted / 4 + CN_JOURNAL_GROW_BYTES) & ~(uint64_t)65535;
    map = mmap(NULL, wanted, PROT_READ, MAP_SHARED, file->fd, 0);
    if (map == MAP_FAILED)
        return cn_lmdb_fail_errno(js->lmdb, errno, "map the journal", err);
    if (file->map)
        munmap((void *)file->map, file->map_bytes);
    file->map = map;
    file->map_bytes = wanted;
    return 0;
}

int
cn_journal_file_look(struct cn_journal_store *js, struct cn_journal_file *file,
                     struct cn_error *err)
{
    struct stat stat;

    if (file->fd < 0)
        return 0;
    if (fstat(file->fd, &stat) != 0)
        return cn_lmdb_fail_errno(js->lmdb, errno, "read the journal", err);
    file->size = (uint64_t)stat.st_size;
    return file_map(js, file, file->size, err);
}

/* Provides room for a file's bytes from `from` to `to`. Where the file system has no fallocate, the
 * file only becomes longer, and never shorter: another process may have extended it since this one
 * looked. Called inside the lock, so none does so meanwhile. 0 or an errno. */
static int
extend(int fd, uint64_t from, uint64_t to)
{
    struct stat stat;

    if (fallocate(fd, 0, (off_t)from, (off_t)(to - from)) == 0)
        return 0;
    if (errno != EOPNOTSUPP || fstat(fd, &stat) != 0)
        return errno;
    return (uint64_t)stat.st_size >= to || ftruncate(fd, (off_t)to) == 0 ? 0 : errno;
}

int
cn_journal_file_provide(struct cn_journal_store *js, struct cn_journal_file *file, uint64_t bytes,
                        struct cn_error *err)
{
    const uint64_t wanted =
        (bytes + CN_JOURNAL_GROW_BYTES - 1) / CN_JOURNAL_GROW_BYTES * CN_JOURNAL_GROW_BYTES;
    int rc;

    if (bytes > file->size) {
        if (extend(file->fd, file->size, wanted) != 0 &&
            (rc = extend(file->fd, file->size, bytes)) != 0)
            return cn_lmdb_fail_errno(js->lmdb, rc, "write", err);
        if ((rc = cn_journal_file_look(js, file, err)) != 0)
            return rc;
    }
    return file_map(js, file, bytes, err);
}

int
cn_journal_ledger_provide(struct cn_journal_store *js, struct cn_journal_file *file, uint64_t bytes,
                          struct cn_error *err)
{
    uint64_t wanted =
        (bytes + CN_LEDGER_GROW_BYTES - 1) / CN_LEDGER_GROW_BYTES * CN_LEDGER_GROW_BYTES;
    int rc;

    if (bytes <= file->ledger_size)
        return 0;
    if (extend(file->ledger_fd, 0, wanted) != 0) {
        wanted = bytes;
        if ((rc = extend(file->ledger_fd, 0, wanted)) != 0)
            return cn_lmdb_fail_errno(js->lmdb, rc, "write", err);
    }
    file->ledger_size = wanted;
    return 0;
}

static int
open_in(const struct cn_journal_store *js, const char *what, unsigned i, int flags)
{
    struct cn_buf path;
    int fd;

    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/%s.%u", js->dir, what, i);
    cn_buf_append(&path, "", 1);
    fd = open(path.data, flags | O_CLOEXEC, 0600);
    cn_buf_fini(&path);
    return fd;
}

int
cn_journal_file_open(struct cn_journal_store *js, unsigned i, struct cn_error *err)
{
    struct cn_journal_file *file = &js->files[i];
    const int flags = js->read_only ? O_RDONLY : O_RDWR | O_CREAT;

    file->fd = open_in(js, "journal", i, flags);
    if (file->fd >= 0 || js->read_only)
        file->ledger_fd = open_in(js, "ledger", i, flags);
    if ((file->fd < 0 || file->ledger_fd < 0) && !(js->read_only && errno == ENOENT))
        return cn_lmdb_fail_errno(js->lmdb, errno, "open the journal", err);
    /* Both files get some room now. If the disk is full, the first commit reports it. The lock is
     * not held yet, so nothing but fallocate is safe here. */
    if (!js->read_only) {
        fallocate(file->fd, 0, 0, CN_JOURNAL_GROW_BYTES);
        fallocate(file->ledger_fd, 0, 0, CN_LEDGER_GROW_BYTES);
    }
    return cn_journal_file_look(js, file, err);
}

void
cn_journal_file_close(struct cn_journal_file *file)
{
    cn_journal_index_fini(&file->index);
    if (file->map)
        munmap((void *)file->map, file->map_bytes);
    if (file->fd >= 0)
        close(file->fd);
    if (file->ledger_fd >= 0)
        close(file->ledger_fd);
    file->map = NULL;
    file->fd = file->ledger_fd = -1;
}
