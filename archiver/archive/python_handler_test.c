/* archiver/archive/python_handler_test.c - TorchServe's names of handlers lead to their files, and
 * constraints are checked. */
#include "archiver/archive/python_handler.h"

#include "archiver/test_support.h"

static void
every_spelling_of_a_handler_names_its_file(void **state)
{
    static const char *const names[][2] = {{"handler.py", "handler.py"},
                                           {"handler", "handler.py"},
                                           {"handler.py:serve", "handler.py"},
                                           {"handler:serve", "handler.py"},
                                           {"folder/handler", "folder/handler.py"},
                                           {"a:b/handler", "a:b/handler.py"},
                                           {"py", "py.py"}};
    char out[32];

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_true(cn_python_handler_file(names[i][0], out, sizeof(out)));
        assert_string_equal(out, names[i][1]);
    }
    assert_false(cn_python_handler_file("handler", out, 10));
    assert_true(cn_python_handler_is_built_in("object_detector"));
    assert_false(cn_python_handler_is_built_in("object_detector.py"));
}

static void
a_constraint_is_understood_or_its_problem_is_named(void **state)
{
    static const char *const good[] = {">=3.9", ">=3.9,<3.14", " == 3.11.* , != 3.11.4", "~=3.10"};
    static const struct {
        const char *constraint, *problem;
    } bad[] = {{"", "must begin with"},
               {"3.9", "must begin with"},
               {"=3.9", "must begin with"},
               {">=", "a version such as 3.9"},
               {">=3.x", "a version such as 3.9"},
               {">=3.9 <4", "commas"},
               {">=3.9,", "must begin with"},
               {">=3.123456", "a version such as 3.9"}};

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_null(cn_python_constraint_problem(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_contains(cn_python_constraint_problem(bad[i].constraint), bad[i].problem);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_of_a_handler_names_its_file),
        cmocka_unit_test(a_constraint_is_understood_or_its_problem_is_named),
    };
    return cmocka_run_group_tests_name("archiver.python_handler", tests, NULL, NULL);
}
