/* worker/process/mend_store_test.c - what was mended after a power cut survives the next one. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/memory/buf.h"
#include "core/test_support.h"
#include "store/disk_store.h"
#include "store/journal/journal_ledger.h"
#include "store/record/record.h"
#include "worker/worker.h"

#define STEPS 5
#define KEY CN_STR("a")

static void
path_in(const char *dir, const char *name, char out[256])
{
    snprintf(out, 256, "%s/%s", dir, name);
}

static bool was_synced;

/* All of this program, with the store and LMDB in it, calls this one. It keeps data.mdb as it is on
 * the disk then. */
int
fdatasync(int fd)
{
    char link[64], path[256] = "", copy[300];
    const char *name;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) < 0 || !(name = strrchr(path, '/')) ||
        strcmp(name, "/data.mdb") != 0)
        return 0;
    snprintf(copy, sizeof(copy), "%s.synced", path);
    test_copy_file(path, copy);
    was_synced = true;
    return 0;
}

static struct cn_store *
open_store(const char *dir)
{
    const struct cn_disk_options options = {.dir = dir,
                                            .max_bytes = 64u << 20,
                                            .journal_max_bytes = 1u << 20,
                                            .check_max_bytes = UINT64_MAX,
                                            .recheck = true,
                                            .sync = true};
    struct cn_store *store = NULL;
    struct cn_error err = {0};

    if (cn_disk_store_open(&options, &store, &err) != 0)
        fail_msg("%s", err.message);
    return store;
}

static void
put_step(struct cn_store *store, uint64_t step)
{
    const struct cn_record record = {.flags = CN_RECORD_HAS_STATE,
                                     .generation = 7,
                                     .step = step,
                                     .last_job = step,
                                     .state = CN_STR("state")};
    struct cn_buf bytes;

    cn_buf_init(&bytes, 0);
    assert_int_equal(cn_record_encode(&record, &bytes, NULL), 0);
    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    assert_int_equal(cn_store_put(store, KEY, cn_buf_str(&bytes), NULL), 0);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    cn_buf_fini(&bytes);
}

/* A power cut has left only the beginning of the ledger on the disk, which is never synced. */
static void
lose_ledger_entries(const char *dir)
{
    char path[256], header[CN_LEDGER_HEADER_BYTES];
    const struct cn_str head = {header, sizeof(header)};
    uint64_t first, seed, boot;
    int fd;

    path_in(dir, "ledger.0", path);
    fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, header, sizeof(header), 0), sizeof(header));
    assert_true(cn_ledger_get_header(head, &first, &seed, &boot));
    cn_ledger_put_header(header, first, seed, boot + 1);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, header, sizeof(header), 0), sizeof(header));
    close(fd);
}

/* Leaves of data.mdb what was synced. When LMDB syncs, it writes its two meta pages after that,
 * through a descriptor that writes to the disk at once. */
static void
cut_power(const char *dir)
{
    const ssize_t len = 2 * sysconf(_SC_PAGESIZE);
    char path[256], copy[256], *metas = malloc((size_t)len);
    int fd;

    path_in(dir, "data.mdb", path);
    path_in(dir, "data.mdb.synced", copy);
    fd = open(was_synced ? path : copy, O_RDONLY);
    assert_int_equal(pread(fd, metas, (size_t)len, 0), len);
    close(fd);
    test_copy_file(copy, path);
    fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, metas, (size_t)len, 0), len);
    close(fd);
    free(metas);
    path_in(dir, "lock.mdb", path);
    unlink(path);
}

/* The second power cut comes when the kernel has written what was changed in the journal since, and
 * nothing of data.mdb but what was synced. */
static void
a_second_power_cut_loses_nothing(void **state)
{
    struct cn_store *store = open_store(*state);
    char path[256], copy[256];
    struct cn_record record;
    struct cn_str value;

    for (uint64_t i = 1; i <= STEPS; i++)
        put_step(store, i);
    cn_store_close(store);
    path_in(*state, "data.mdb", path);
    path_in(*state, "data.mdb.synced", copy);
    test_copy_file(path, copy); /* each commit was synced */
    lose_ledger_entries(*state);
    was_synced = false;
    assert_int_equal(cn_worker_check_store(*state, true), 0);
    cut_power(*state);
    store = open_store(*state);
    assert_int_equal(cn_store_begin(store, CN_STORE_READ, NULL), 0);
    assert_int_equal(cn_store_get(store, KEY, &value, NULL), 0);
    assert_int_equal(cn_record_decode(value, &record, NULL), 0);
    assert_int_equal(record.step, STEPS);
    cn_store_close(store);
    path_in(*state, CN_STORE_DAMAGED, path);
    assert_int_not_equal(access(path, F_OK), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_second_power_cut_loses_nothing, test_dir_set_up,
                                        test_dir_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
