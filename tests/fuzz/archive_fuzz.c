/* cn_fuzz: core archiver */
/* tests/fuzz/archive_fuzz.c - any bytes as a model archive. It is unpacked or refused, and the
 * scratch folder contains the destination or nothing. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "archiver/archive/archive.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "tests/fuzz/fuzz.h"

static char scratch[64];

static void
remove_scratch(void)
{
    cn_archive_remove_dir(scratch);
}

static unsigned
count_entries(void)
{
    DIR *folder = opendir(scratch);
    struct dirent *entry;
    unsigned n = 0;

    cn_assert(folder != NULL);
    while ((entry = readdir(folder)) != NULL)
        n += entry->d_name[0] != '.';
    closedir(folder);
    return n;
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const struct cn_archive_limits limits = {
        .max_bytes = 1 << 17, .max_file_bytes = 1 << 16, .max_files = 50};
    struct cn_manifest manifest = {0};
    struct cn_error err = {0};
    char path[64], dest[128], *dir = NULL;
    int fd = memfd_create("archive", MFD_CLOEXEC), rc;

    if (scratch[0] == '\0') {
        /* In memory if possible, because thousands of small folders are made and deleted. */
        strcpy(scratch, access("/dev/shm", W_OK) == 0 ? "/dev/shm/cn-fuzz-archive-XXXXXX"
                                                      : "/tmp/cn-fuzz-archive-XXXXXX");
        cn_assert(mkdtemp(scratch) != NULL);
        atexit(remove_scratch);
    }
    cn_assert(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    snprintf(dest, sizeof(dest), "%s/dest", scratch);
    rc = cn_archive_unpack(path, dest, &limits, &manifest, &dir, &err);
    close(fd);
    cn_assert(count_entries() == (rc == 0));
    if (rc == 0) {
        cn_archive_remove_dir(dest);
        cn_manifest_fini(&manifest);
        cn_free(dir);
    } else {
        cn_assert(dir == NULL && strchr(err.message, '\n') == NULL);
    }
    return 0;
}
