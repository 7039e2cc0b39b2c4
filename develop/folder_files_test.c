/* develop/folder_files_test.c - tests that changes of a folder are found, and that files which
 * build.sh makes are told from those of the author. */
#include "develop/folder_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/test_support.h"

struct folder {
    char dir[TEST_DIR_MAX];
    struct cn_folder_files last, before, after;
};

static int
set_up(void **state)
{
    static struct folder folder;

    memset(&folder, 0, sizeof folder);
    test_dir_make(folder.dir);
    *state = &folder;
    return 0;
}

static int
tear_down(void **state)
{
    struct folder *folder = *state;

    cn_folder_files_fini(&folder->last);
    test_dir_remove(folder->dir);
    return 0;
}

/* Makes the file longer, so that it is another one whatever the clock says. */
static void
touch(const struct folder *folder, const char *name)
{
    char path[TEST_DIR_MAX + 64];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder->dir, name);
    file = fopen(path, "ae");
    assert_non_null(file);
    fputs("x", file);
    fclose(file);
}

/* A run that changes these files. Returns whether one of them may be the author's. */
static bool
run(struct folder *folder, const char *one, const char *two, bool again)
{
    bool others;

    cn_folder_files_list(folder->dir, &folder->before);
    if (one)
        touch(folder, one);
    if (two)
        touch(folder, two);
    cn_folder_files_list(folder->dir, &folder->after);
    others = cn_folder_files_built(&folder->after, &folder->before, &folder->last, again);
    cn_folder_files_fini(&folder->before);
    cn_folder_files_fini(&folder->last);
    folder->last = folder->after;
    return others;
}

/* Has the folder changed since the last run? */
static bool
has_changed(struct folder *folder)
{
    struct cn_folder_files now;
    bool differ;

    cn_folder_files_list(folder->dir, &now);
    differ = cn_folder_files_differ(&now, &folder->last);
    cn_folder_files_fini(&now);
    return differ;
}

static void
changes_are_found(void **state)
{
    struct folder *folder = *state;

    assert_false(run(folder, NULL, NULL, false));
    assert_false(has_changed(folder));
    touch(folder, ".hidden");
    touch(folder, "handler.c~");
    touch(folder, "test.yaml");
    assert_false(has_changed(folder));
    for (int i = 0; i < 100; i++) {
        char name[16];

        snprintf(name, sizeof name, "file%d", i);
        touch(folder, name);
        assert_true(has_changed(folder));
        assert_false(run(folder, NULL, NULL, false));
        assert_false(has_changed(folder));
    }
    touch(folder, "file42");
    assert_true(has_changed(folder));
}

static void
what_each_run_makes_is_not_the_authors(void **state)
{
    struct folder *folder = *state;

    touch(folder, "handler.c");
    assert_true(run(folder, "handler.o", NULL, false));  /* who has made it? */
    assert_false(run(folder, "handler.o", NULL, true));  /* build.sh */
    assert_false(run(folder, "handler.o", NULL, false)); /* for another change */
    assert_false(has_changed(folder));
    touch(folder, "handler.o");
    assert_true(has_changed(folder)); /* by the author */
}

static void
what_the_author_saves_during_a_run_counts(void **state)
{
    struct folder *folder = *state;

    touch(folder, "handler.c");
    assert_true(run(folder, "handler.o", NULL, false));
    assert_false(run(folder, "handler.o", NULL, true));
    assert_true(run(folder, "handler.o", "handler.c", false));
    assert_false(run(folder, "handler.o", NULL, true));
    /* Two runs for two changes say nothing about the file that changed in both of them. */
    assert_true(run(folder, "handler.o", "handler.c", false));
    assert_true(run(folder, "handler.o", "handler.c", false));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(changes_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_each_run_makes_is_not_the_authors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_the_author_saves_during_a_run_counts, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests_name("develop.folder_files", tests, NULL, NULL);
}
