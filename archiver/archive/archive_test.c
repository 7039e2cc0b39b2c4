/* archiver/archive/archive_test.c - tests that good archives are unpacked and that hostile ones
 * leave nothing behind. */
#include "archiver/archive/archive.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "archiver/archive/archive_path.h"
#include "archiver/archive/digest.h"
#include "archiver/test_support.h"
#include "core/memory/mem.h"

static const struct cn_archive_limits small = {
    .max_bytes = 100000, .max_file_bytes = 60000, .max_files = 20};

static unsigned
count_entries(void)
{
    DIR *folder = opendir(scratch);
    unsigned n = 0;

    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n - 2;
}

/* Expects that the archive is refused with `message`, and that nothing else is in the folder. */
static void
refused(const char *archive, const char *message)
{
    struct cn_manifest manifest = {0};
    struct cn_error err = {0};
    char *dir = NULL;
    unsigned before = count_entries();
    int rc =
        cn_archive_unpack(in_scratch(archive), in_scratch("dest"), &small, &manifest, &dir, &err);

    if (rc == 0)
        fail_msg("%s was unpacked; expected: %s", archive, message);
    assert_contains(err.message, message);
    assert_null(dir);
    assert_null(manifest.handler);
    assert_int_equal(count_entries(), before);
}

static void
unpacks(const char *archive)
{
    struct cn_manifest manifest = {0};
    struct cn_error err = {0};
    char *dir = NULL, *handler;

    if (cn_archive_unpack(in_scratch(archive), in_scratch("dest"), &small, &manifest, &dir, &err) !=
        0)
        fail_msg("%s", err.message);
    assert_string_equal(manifest.handler, "handler.lua");
    handler = cn_path_join(dir, "handler.lua");
    assert_int_equal(dir[0], '/');
    assert_int_equal(access(handler, R_OK), 0);
    cn_free(handler);
    cn_manifest_fini(&manifest);
    cn_free(dir);
}

static void
write_good(struct zip *zip)
{
    zip_file(zip, CN_MANIFEST_PATH, MANIFEST_TEXT);
    zip_file(zip, "handler.lua", "return {}\n");
}

/* Makes a good zip with one more entry. */
static void
refused_with(struct cn_str name, unsigned mode, const char *message)
{
    struct zip zip = {0};

    write_good(&zip);
    zip_add(&zip, name, "x", mode);
    zip_write(&zip, "bad.mar");
    refused("bad.mar", message);
}

/* The plain case. No temporary file is left in the folder. */
static void
a_zip_is_unpacked(void **state)
{
    struct zip zip = {0};

    (void)state;
    write_good(&zip);
    zip_file(&zip, "./lib//\xc3\xbc.lua", "return 1\n");
    zip_add(&zip, CN_STR("empty/"), "", 040755);
    zip_write(&zip, "m.mar");
    unpacks("m.mar");
    assert_true(is_there("dest/lib/\xc3\xbc.lua"));
    assert_true(is_there("dest/empty"));
    assert_int_equal(count_entries(), 2);
    cn_archive_remove_dir(in_scratch("dest"));
    assert_false(is_there("dest"));
}

/* The files may be in a folder of their own, or have "./" before their names, or neither. */
static void
a_tar_is_unpacked_whatever_its_root(void **state)
{
    static const char *const prefixes[] = {"m/", "./", "", "./m/"};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct cn_buf tar;
        char name[64];

        cn_buf_init(&tar, 0);
        snprintf(name, sizeof(name), "%shandler.lua", prefixes[i]);
        if (i == 1)
            tar_add(&tar, "./", '5', "", "", 0);
        tar_add(&tar, name, '0', "", "return {}\n", 10);
        snprintf(name, sizeof(name), "%s" CN_MANIFEST_PATH, prefixes[i]);
        tar_add(&tar, name, '0', "", MANIFEST_TEXT, strlen(MANIFEST_TEXT));
        tar_write(&tar, "m.tar");
        unpacks("m.tar");
        assert_int_equal(count_entries(), 2);
        cn_archive_remove_dir(in_scratch("dest"));
    }
}

/* No name leads out of the folder, or contains characters that disturb a shell, a log or JSON. */
static void
dangerous_names_are_refused(void **state)
{
    (void)state;
    refused_with(CN_STR("../evil"), 0100644, "entry \"../evil\" leads outside the archive");
    refused_with(CN_STR("a/../../evil"), 0100644, "leads out");
    refused_with(CN_STR("/tmp/cn-evil"), 0100644, "entry \"/tmp/cn-evil\" is an absolute path");
    refused_with(CN_STR("a\nb"), 0100644, "entry \"a?b\" has a control character");
    refused_with(CN_STR("\xff\xfe"), 0100644, "UTF-8");
    /* the part behind the NUL is not seen, so this is a second handler.lua */
    refused_with(CN_STR("handler.lua\0x"), 0100644, "handler.lua\" comes twice");
}

/* Two entries have one name: nobody could know which of them was signed and which one runs. */
static void
names_that_clash_are_refused(void **state)
{
    (void)state;
    refused_with(CN_STR("handler.lua"), 0100644, "entry \"handler.lua\" comes twice");
    refused_with(CN_STR("./handler.lua"), 0100644, "comes twice");
    refused_with(CN_STR(".//handler.lua"), 0100644, "comes twice");
    refused_with(CN_STR("handler.lua/x"), 0100644, "is both a file and a folder");
    refused_with(CN_STR("MAR-INF"), 0100644, "comes twice");
}

/* Links and devices reach outside of the folder. */
static void
only_files_and_folders_are_unpacked(void **state)
{
    static const struct {
        char type;
        const char *message;
    } kinds[] = {{'1', "is a hard link"},
                 {'2', "is a symbolic link"},
                 {'3', "is a device"},
                 {'4', "is a device"},
                 {'6', "is a named pipe"}};

    (void)state;
    refused_with(CN_STR("link"), 0120777, "entry \"link\" is a symbolic link");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct cn_buf tar;

        cn_buf_init(&tar, 0);
        tar_add(&tar, "m/" CN_MANIFEST_PATH, '0', "", MANIFEST_TEXT, strlen(MANIFEST_TEXT));
        tar_add(&tar, "m/handler.lua", '0', "", "return {}\n", 10);
        tar_add(&tar, "m/evil", kinds[i].type, "/etc/passwd", "", 0);
        tar_write(&tar, "bad.tar");
        refused("bad.tar", kinds[i].message);
    }
}

/* The limits count unpacked bytes, for each file and for all together. */
static void
bombs_are_stopped(void **state)
{
    struct zip zip = {0};
    char *big = malloc(60002);

    (void)state;
    memset(big, 'a', 60001);
    big[60001] = '\0';
    write_good(&zip);
    zip_file(&zip, "big", big);
    zip_write(&zip, "bad.mar");
    refused("bad.mar", "entry \"big\" unpacks to more than 60000 bytes");
    big[55000] = '\0';
    write_good(&zip);
    zip_file(&zip, "one", big);
    zip_file(&zip, "two", big);
    zip_write(&zip, "bad.mar");
    refused("bad.mar", "unpacks to more than 100000 bytes");
    free(big);
    for (int i = 0; i < 21; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%d", i);
        zip_file(&zip, name, "");
    }
    zip_write(&zip, "bad.mar");
    refused("bad.mar", "more than 20 entries");
}

/* The header says more or fewer bytes than there are. */
static void
lying_sizes_and_checksums_are_refused(void **state)
{
    struct cn_buf tar;
    struct zip zip = {0};
    char *big;

    (void)state;
    cn_buf_init(&tar, 0);
    tar_add(&tar, CN_MANIFEST_PATH, '0', "", MANIFEST_TEXT, strlen(MANIFEST_TEXT));
    tar_add(&tar, "handler.lua", '0', "", "return {}\n", 50000);
    tar_write(&tar, "bad.tar");
    refused("bad.tar", "bad.tar: ");
    write_good(&zip);
    /* the content of the first entry begins after 30 bytes and its name */
    zip.body.data[30 + strlen(CN_MANIFEST_PATH) + 3] ^= 1;
    zip_write(&zip, "bad.mar");
    refused("bad.mar", "bad.mar: ");
    /* both headers say 5 bytes, but the content has 60001 */
    big = malloc(60002);
    memset(big, 'a', 60001);
    big[60001] = '\0';
    write_good(&zip);
    zip.claimed = 5;
    zip_file(&zip, "big", big);
    zip_write(&zip, "bad.mar");
    refused("bad.mar", "\"big\"");
    free(big);
}

/* The message has the archive's name, and the server continues. */
static void
what_is_no_archive_is_refused(void **state)
{
    struct zip zip = {0};
    struct stat st;

    (void)state;
    write_text("bad.mar", "");
    refused("bad.mar", "bad.mar: ");
    write_text("bad.mar", "this is not an archive");
    refused("bad.mar", "bad.mar: not a readable zip or tar.gz archive");
    /* A zip that is cut anywhere before the directory's end mark (22 bytes) has lost an entry or
     * all entries. */
    write_good(&zip);
    zip_write(&zip, "cut.mar");
    assert_int_equal(stat(in_scratch("cut.mar"), &st), 0);
    for (off_t left = st.st_size - 23; left > 0; left -= 7) {
        assert_int_equal(truncate(in_scratch("cut.mar"), left), 0);
        refused("cut.mar", "cut.mar: ");
    }
    refused("nowhere.mar", "cannot read model archive");
    assert_int_equal(mkfifo(in_scratch("pipe.mar"), 0600), 0);
    refused("pipe.mar", "is neither a file nor a folder");
}

/* A model cannot run without its manifest, or without a file that the manifest names. */
static void
incomplete_archives_are_refused(void **state)
{
    struct zip zip = {0};

    (void)state;
    zip_file(&zip, "handler.lua", "return {}\n");
    zip_write(&zip, "bad.mar");
    refused("bad.mar", "bad.mar: has no MAR-INF/MANIFEST.json");
    zip_file(&zip, CN_MANIFEST_PATH, MANIFEST_TEXT);
    zip_write(&zip, "bad.mar");
    refused("bad.mar", "model.handler \"handler.lua\" is not in the archive");
    zip_file(&zip, CN_MANIFEST_PATH,
             "{\"model\": {\"handler\": \"handler.lua\", "
             "\"configFile\": \"c.yaml\"}}");
    zip_file(&zip, "handler.lua", "");
    zip_write(&zip, "bad.mar");
    refused("bad.mar", "model.configFile \"c.yaml\" is not in the archive");
    zip_file(&zip, CN_MANIFEST_PATH, "{\"model\": {}}");
    zip_write(&zip, "bad.mar");
    refused("bad.mar", "names no model.handler");
    zip_file(&zip, CN_MANIFEST_PATH, "{");
    zip_write(&zip, "bad.mar");
    refused("bad.mar", "bad.mar: MAR-INF/MANIFEST.json:1:");
}

/* The server runs exactly what was packed. */
static void
the_list_of_digests_is_kept_to(void **state)
{
    struct zip zip = {0};
    char hex[65], manifest[512];

    (void)state;
    write_text("handler.lua", "return {}\n");
    assert_int_equal(cn_digest_file(in_scratch("handler.lua"), 0, hex, NULL, NULL), 0);
    unlink(in_scratch("handler.lua"));
    snprintf(manifest, sizeof(manifest),
             "{\"model\": {\"handler\": \"handler.lua\"}, \"files\": "
             "{\"handler.lua\": \"sha256:%s\"}}",
             hex);
    zip_file(&zip, CN_MANIFEST_PATH, manifest);
    zip_file(&zip, "handler.lua", "return {}\n");
    zip_write(&zip, "m.mar");
    unpacks("m.mar");
    cn_archive_remove_dir(in_scratch("dest"));
    zip_file(&zip, CN_MANIFEST_PATH, manifest);
    zip_file(&zip, "handler.lua", "return{ }\n");
    zip_write(&zip, "m.mar");
    refused("m.mar", "handler.lua differs from its sha256");
    zip_file(&zip, CN_MANIFEST_PATH, manifest);
    zip_file(&zip, "handler.lua", "return {}\n");
    zip_file(&zip, "lib/more.lua", "");
    zip_write(&zip, "m.mar");
    refused("m.mar", "lib/more.lua is not listed in the manifest");
    snprintf(manifest, sizeof(manifest),
             "{\"model\": {\"handler\": \"handler.lua\"}, \"files\": "
             "{\"handler.lua\": \"sha256:%s\", \"gone\": \"sha256:%s\"}}",
             hex, hex);
    zip_file(&zip, CN_MANIFEST_PATH, manifest);
    zip_file(&zip, "handler.lua", "return {}\n");
    zip_write(&zip, "m.mar");
    refused("m.mar", "gone is listed in the manifest but missing in the archive");
}

/* Files of somebody else are never overwritten. */
static void
a_destination_in_use_is_left_alone(void **state)
{
    struct zip zip = {0};

    (void)state;
    write_good(&zip);
    zip_write(&zip, "m.mar");
    assert_int_equal(mkdir(in_scratch("dest"), 0755), 0);
    unpacks("m.mar"); /* empty: fine */
    refused("m.mar", "exists and is not an empty folder");
    assert_true(is_there("dest/handler.lua"));
    cn_archive_remove_dir(in_scratch("dest"));
    write_text("dest", "");
    refused("m.mar", "exists and is not an empty folder");
}

/* A folder is used where it is, even if it has no manifest because its author still works in it. */
static void
a_folder_is_read_in_place(void **state)
{
    struct cn_manifest manifest;
    struct cn_error err = {0};
    char *dir = NULL;

    (void)state;
    assert_int_equal(mkdir(in_scratch("model"), 0755), 0);
    refused("model", "no handler.lua, handler.py, handler.so, model.pt or model.onnx");
    write_text("model/handler.lua", "return {}\n");
    write_text("model/model-config.yaml", "");
    assert_int_equal(
        cn_archive_unpack(in_scratch("model/"), in_scratch("dest"), NULL, &manifest, &dir, &err),
        0);
    assert_string_equal(dir, in_scratch("model"));
    assert_string_equal(manifest.model_name, "model");
    assert_string_equal(manifest.model_version, "1.0");
    assert_string_equal(manifest.runtime, "lua");
    assert_string_equal(manifest.config_file, "model-config.yaml");
    assert_false(is_there("dest"));
    cn_manifest_fini(&manifest);
    cn_free(dir);
    dir = NULL;
    assert_int_equal(mkdir(in_scratch("model/MAR-INF"), 0755), 0);
    write_text("model/" CN_MANIFEST_PATH, MANIFEST_TEXT);
    assert_int_equal(
        cn_archive_unpack(in_scratch("model"), in_scratch("dest"), NULL, &manifest, &dir, &err), 0);
    assert_string_equal(manifest.model_name, "m");
    assert_null(manifest.config_file);
    cn_manifest_fini(&manifest);
    cn_free(dir);
}

/* The target of a link is not deleted. */
static void
removing_does_not_follow_links(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_scratch("keep"), 0755), 0);
    write_text("keep/file", "x");
    assert_int_equal(mkdir(in_scratch("dest"), 0755), 0);
    assert_int_equal(symlink(in_scratch("keep"), in_scratch("dest/link")), 0);
    cn_archive_remove_dir(in_scratch("dest"));
    assert_false(is_there("dest"));
    assert_true(is_there("keep/file"));
}

/* Deeper than the descriptors that are open at once, and than the longest path. */
static void
deep_folders_are_removed(void **state)
{
    int folder, deeper;

    (void)state;
    assert_int_equal(mkdir(in_scratch("dest"), 0755), 0);
    folder = open(in_scratch("dest"), O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(mkdirat(folder, "deeper", 0755), 0);
        deeper = openat(folder, "deeper", O_RDONLY | O_DIRECTORY);
        assert_true(deeper >= 0);
        close(folder);
        folder = deeper;
    }
    close(folder);
    cn_archive_remove_dir(in_scratch("dest"));
    assert_false(is_there("dest"));
}

struct swapper {
    pthread_t thread;
    atomic_bool stop;
    char a[512], b[512], keep[512];
};

/* What a handler's process could do while the server deletes its folder. */
static void *
swap_folder_and_link(void *arg)
{
    struct swapper *swapper = arg;

    while (!atomic_load(&swapper->stop)) {
        rename(swapper->a, swapper->b);
        if (symlink(swapper->keep, swapper->a) == 0)
            unlink(swapper->a);
        rename(swapper->b, swapper->a);
    }
    return NULL;
}

static void
a_link_that_comes_meanwhile_leads_nowhere(void **state)
{
    struct swapper swapper;
    char name[32];

    (void)state;
    strcpy(swapper.a, in_scratch("dest/a"));
    strcpy(swapper.b, in_scratch("dest/b"));
    strcpy(swapper.keep, in_scratch("keep"));
    assert_int_equal(mkdir(swapper.keep, 0755), 0);
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), "keep/%d", i);
        write_text(name, "x");
    }
    for (int round = 0; round < 20; round++) {
        mkdir(in_scratch("dest"), 0755);
        mkdir(in_scratch("dest/a"), 0755);
        for (int i = 0; i < 200; i++) {
            snprintf(name, sizeof(name), "dest/a/%d", i);
            write_text(name, "x");
        }
        atomic_init(&swapper.stop, false);
        assert_int_equal(pthread_create(&swapper.thread, NULL, swap_folder_and_link, &swapper), 0);
        cn_archive_remove_dir(in_scratch("dest"));
        atomic_store(&swapper.stop, true);
        pthread_join(swapper.thread, NULL);
        cn_archive_remove_dir(in_scratch("dest")); /* what was moved meanwhile */
        assert_false(is_there("dest"));
    }
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), "keep/%d", i);
        assert_true(is_there(name));
    }
}

#define SCRATCH_TEST(f) cmocka_unit_test_setup_teardown(f, make_scratch, remove_scratch)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_TEST(a_zip_is_unpacked),
        SCRATCH_TEST(a_tar_is_unpacked_whatever_its_root),
        SCRATCH_TEST(dangerous_names_are_refused),
        SCRATCH_TEST(names_that_clash_are_refused),
        SCRATCH_TEST(only_files_and_folders_are_unpacked),
        SCRATCH_TEST(bombs_are_stopped),
        SCRATCH_TEST(lying_sizes_and_checksums_are_refused),
        SCRATCH_TEST(what_is_no_archive_is_refused),
        SCRATCH_TEST(incomplete_archives_are_refused),
        SCRATCH_TEST(the_list_of_digests_is_kept_to),
        SCRATCH_TEST(a_destination_in_use_is_left_alone),
        SCRATCH_TEST(a_folder_is_read_in_place),
        SCRATCH_TEST(removing_does_not_follow_links),
        SCRATCH_TEST(deep_folders_are_removed),
        SCRATCH_TEST(a_link_that_comes_meanwhile_leads_nowhere),
    };
    return cmocka_run_group_tests_name("archiver.archive", tests, NULL, NULL);
}
