/* management/repository/model_store_test.c - tests finding models in the model store. */
#include "management/repository/model_store.h"

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

#include "core/memory/mem.h"
#include "core/test_support.h"

static char store[TEST_DIR_MAX];

static void
make(const char *name, int is_dir)
{
    char path[200];

    if (!is_dir) {
        test_dir_write(store, name, "");
        return;
    }
    snprintf(path, sizeof path, "%s/%s", store, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static int
set_up(void **state)
{
    (void)state;
    test_dir_make(store);
    make("b.mar", 0);
    make("a.tar.gz", 0);
    make("folder", 1);
    make(".hidden.mar", 0);
    make("notes.txt", 0);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    return test_dir_remove(store);
}

static void
expect_refused(const char *url, int code, const char *message)
{
    struct cn_error err;
    char *path = NULL;

    assert_int_equal(cn_model_store_resolve(store, url, &path, &err), code);
    assert_string_equal(err.message, message);
    assert_null(path);
}

static void
expect_found(const char *url, const char *expected)
{
    struct cn_error err;
    char *path = NULL;

    assert_int_equal(cn_model_store_resolve(store, url, &path, &err), 0);
    assert_string_equal(path, expected);
    cn_free(path);
}

/* A name, an absolute path and file:// all lead to the file. */
static void
archives_are_found_by_name_and_path(void **state)
{
    char path[200], url[220];

    (void)state;
    snprintf(path, sizeof path, "%s/b.mar", store);
    snprintf(url, sizeof url, "file://%s", path);
    expect_found("b.mar", path);
    expect_found(path, path);
    expect_found(url, path);
    /* A path that does not exist may name an archive of the store, as in TorchServe. */
    expect_found("/elsewhere/b.mar", path);
}

/* A client that may register models must not be able to read other files through them. */
static void
paths_that_climb_are_refused(void **state)
{
    (void)state;
    expect_refused("../b.mar", CN_E_MODEL_NOT_FOUND,
                   "Relative path is not allowed in url: ../b.mar");
    expect_refused("folder/../b.mar", CN_E_MODEL_NOT_FOUND,
                   "Relative path is not allowed in url: folder/../b.mar");
    expect_refused("..", CN_E_MODEL_NOT_FOUND, "Relative path is not allowed in url: ..");
    expect_refused("file:///tmp/../etc/passwd", CN_E_MODEL_NOT_FOUND,
                   "Relative path is not allowed in url: file:///tmp/../etc/passwd");
}

/* The messages are TorchServe's, which scripts look for. */
static void
missing_archives_are_named(void **state)
{
    (void)state;
    expect_refused(NULL, CN_E_BAD_REQUEST, "Parameter url is required.");
    expect_refused("", CN_E_MODEL_NOT_FOUND, "empty url");
    expect_refused("c.mar", CN_E_MODEL_NOT_FOUND, "Model not found at: c.mar");
    expect_refused("b.mar/x", CN_E_MODEL_NOT_FOUND, "Model not found at: b.mar/x");
    expect_refused("ftp://host/c.mar", CN_E_MODEL_NOT_FOUND,
                   "Model not found at: ftp://host/c.mar (this server loads from its model store, "
                   "local paths, file://, http:// and https://)");
    expect_refused("s3://bucket/c.mar", CN_E_MODEL_NOT_FOUND,
                   "Model not found at: s3://bucket/c.mar (this server has no S3 client; register "
                   "a signed https URL of the object, such as \"aws s3 presign s3://bucket/c.mar\" "
                   "prints)");
}

/* `--models all` takes folders and archives, nothing hidden, in a stable order. */
static void
all_lists_models_sorted(void **state)
{
    struct cn_error err;
    char **names;
    uint32_t count, i;

    (void)state;
    assert_int_equal(cn_model_store_list(store, &names, &count, &err), 0);
    assert_int_equal(count, 3);
    assert_string_equal(names[0], "a.tar.gz");
    assert_string_equal(names[1], "b.mar");
    assert_string_equal(names[2], "folder");
    for (i = 0; i < count; i++)
        cn_free(names[i]);
    cn_free(names);
}

/* If the model store cannot be used, the server says so at its start, not at the first register
 * call. */
static void
an_unusable_store_is_named(void **state)
{
    struct cn_error err;
    char path[200];

    (void)state;
    assert_int_equal(cn_model_store_check(store, &err), 0);
    assert_int_equal(cn_model_store_check(NULL, &err), 0);
    snprintf(path, sizeof path, "%s/b.mar", store);
    assert_int_equal(cn_model_store_check(path, &err), CN_E_CONFIG);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(cn_model_store_check("/nowhere", &err), CN_E_CONFIG);
    assert_string_equal(err.message,
                        "cannot open the model store /nowhere: No such file or directory");
}

/* A model without a name gets the name of its file. */
static void
the_stem_names_a_model(void **state)
{
    char *stem;

    (void)state;
    stem = cn_model_store_stem("/a/b/my-model.tar.gz");
    assert_string_equal(stem, "my_model");
    cn_free(stem);
    stem = cn_model_store_stem("folder.v1/");
    assert_string_equal(stem, "folder_v1");
    cn_free(stem);
}

/* A load request names a model, not a file. It must notice when another archive lies there. */
static void
archives_are_found_by_name_and_change(void **state)
{
    char path[200], inner[300];
    char *found;
    uint64_t before;
    FILE *file;

    (void)state;
    make("stamped.tar.gz", 0);
    make("stampede.mar", 0);
    make("stamps", 1);
    assert_null(cn_model_store_find(store, "stamp"));
    found = cn_model_store_find(store, "stamped");
    assert_string_equal(found, "stamped.tar.gz");
    cn_free(found);
    snprintf(path, sizeof path, "%s/nothing", store);
    assert_true(cn_model_store_stamp(path) == 0);
    snprintf(path, sizeof path, "%s/stamps", store);
    before = cn_model_store_stamp(path);
    assert_true(before != 0 && before == cn_model_store_stamp(path));
    snprintf(inner, sizeof inner, "%s/handler.lua", path);
    file = fopen(inner, "w");
    assert_non_null(file);
    fclose(file);
    assert_true(cn_model_store_stamp(path) != before);
    unlink(inner);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(archives_are_found_by_name_and_path),
        cmocka_unit_test(paths_that_climb_are_refused),
        cmocka_unit_test(missing_archives_are_named),
        cmocka_unit_test(all_lists_models_sorted),
        cmocka_unit_test(an_unusable_store_is_named),
        cmocka_unit_test(the_stem_names_a_model),
        cmocka_unit_test(archives_are_found_by_name_and_change),
    };

    return cmocka_run_group_tests_name("management.model_store", tests, set_up, tear_down);
}
