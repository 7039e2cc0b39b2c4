/* handlers/torchscript/torch_versions_test.c - tests which of several libraries is chosen for the
 * libtorch that is there, with a stand-in for it (testdata/fake_library.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handlers/torchscript/test_torch.h"

/* A libtorch that is older than the one against which the library was built would crash the worker;
 * a newer one is let through, and if it lacks a function, the library does not open. */
static void
an_older_libtorch_is_refused_by_its_version(void **state)
{
    (void)state;
    setenv("FAKE_LIBTORCH", "2.12.1", 1);
    refused("sum", SUM_YAML, "libtorch 2.12.1 is older than that against which");
    refused("sum", SUM_YAML, "install PyTorch 2.13 or later");
    setenv("FAKE_LIBTORCH", "1.13.0", 1);
    refused("sum", SUM_YAML, "libtorch 1.13.0 is older");
    for (unsigned i = 0; i < 4; i++) {
        static const char *const others[] = {"2.13.1", "2.14.0+cpu", "3.0.0", "unknown"};
        struct cn_runtime *rt;

        setenv("FAKE_LIBTORCH", others[i], 1);
        rt = must_open("sum", SUM_YAML);
        cn_torch_runtime_ops.close(rt);
    }
    unsetenv("FAKE_LIBTORCH");
}

static void
copy_library(const char *name)
{
    char command[3 * TEST_DIR_MAX + sizeof(library)];

    snprintf(command, sizeof(command), "cp %s %s/%s", library, dir, name);
    assert_int_equal(system(command), 0);
}

static void
compiled_against(const char *libtorch, const char *version)
{
    struct cn_runtime *rt;

    setenv("FAKE_LIBTORCH", libtorch, 1);
    rt = must_open("sum", SUM_YAML);
    if (!strstr(rt->ops->describe(rt), version))
        fail_msg("with %s: \"%s\" is not in \"%s\"", libtorch, version, rt->ops->describe(rt));
    rt->ops->close(rt);
}

/* A wheel brings a library for each of some versions of PyTorch, and cannot know which is there. */
static void
the_library_for_the_libtorch_that_is_there_is_chosen(void **state)
{
    char path[2 * TEST_DIR_MAX];

    (void)state;
    snprintf(path, sizeof(path), "%s/torch.so", dir);
    load.torch_library = path;
    copy_library("torch.so"); /* for 2.13 */
    copy_library("torch-2.9.so");
    copy_library("torch-2.12.so");
    copy_library("torch-old.so"); /* not ours, and would take any */
    compiled_against("2.14.0", "built with 2.13.0");
    compiled_against("2.12.1", "built with 2.12");
    compiled_against("2.11.0", "built with 2.9");
    setenv("FAKE_LIBTORCH", "2.8.0", 1);
    refused("sum", SUM_YAML, "libtorch 2.8.0 is older than that against which");
    refused("sum", SUM_YAML, "install PyTorch 2.9 or later");
    unsetenv("FAKE_LIBTORCH");
    snprintf(path, sizeof(path), "%s/broken.so", dir);
    test_dir_write(dir, "broken.so", "");
    test_dir_write(dir, "broken-2.12.so", "");
    refused("sum", SUM_YAML, "broken.so: file too short");
}

/* A broken library, or one of another build, is a fault of the installation, which another library
 * must not hide. */
static void
only_an_older_libtorch_leads_to_the_libraries_beside(void **state)
{
    char path[2 * TEST_DIR_MAX];

    (void)state;
    snprintf(path, sizeof(path), "%s/torch.so", dir);
    load.torch_library = path;
    copy_library("torch-2.12.so");
    test_dir_write(dir, "torch.so", "");
    refused("sum", SUM_YAML, "torch.so: file too short");
    copy_library("torch.so");
    setenv("FAKE_FIRST_IS_STRANGE", "1", 1);
    refused("sum", SUM_YAML, "/torch.so belongs to another version of Continuo");
    unsetenv("FAKE_FIRST_IS_STRANGE");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_older_libtorch_is_refused_by_its_version),
        TEST(only_an_older_libtorch_leads_to_the_libraries_beside),
        TEST(the_library_for_the_libtorch_that_is_there_is_chosen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
