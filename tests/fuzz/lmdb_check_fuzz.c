/* cn_fuzz: core store */
/* tests/fuzz/lmdb_check_fuzz.c - data.mdb comes from disk. Whatever its bytes are, the check ends,
 * reads nothing outside of the file, and shows only whole entries. For a file that it calls whole,
 * it must show the entries that LMDB would show, each with its value. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "fuzz.h"
#include "store/lmdb/lmdb_check.h"
#include "store/lmdb/lmdb_seal.h"

struct shown {
    uint64_t keys, values, sum;
};

static void
take(void *ctx, bool pieces, struct cn_str key, struct cn_str value)
{
    struct shown *shown = ctx;

    cn_assert(key.len > 0);
    shown->keys++;
    shown->sum += cn_checksum(key.ptr, key.len, pieces);
    if (!value.ptr)
        return;
    cn_assert(cn_lmdb_seal_check(key, value) == CN_LMDB_SEAL_INTACT);
    shown->values++;
}

static int
file_of(const uint8_t *data, size_t size)
{
    int fd = memfd_create("data.mdb", MFD_CLOEXEC);

    cn_assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    return fd;
}

bool
cn_fuzz_is_valid(const uint8_t *data, size_t size)
{
    struct cn_lmdb_report report;
    int fd = file_of(data, size);
    bool valid = cn_lmdb_check(fd, &report, NULL) == 0 && report.whole && report.entries > 3;

    cn_lmdb_report_fini(&report);
    close(fd);
    return valid;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shown shown = {0};
    const struct cn_lmdb_receiver receiver = {take, &shown};
    struct cn_lmdb_report report;
    int fd = file_of(data, size);

    cn_assert(cn_lmdb_check(fd, &report, NULL) == 0);
    cn_assert(report.whole == (report.text.len == 0));
    cn_assert(cn_lmdb_visit(fd, &report, &receiver, NULL) == 0);
    if (report.whole && !report.foreign)
        cn_assert(shown.values == shown.keys);
    cn_lmdb_report_fini(&report);
    close(fd);
    return 0;
}
