/* core/containers/phase_test.c - a table of phases allows what it lists, and nothing else. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/containers/phase.h"

#define TABLE                                                                                      \
    CN_PHASE(EGG, "warmth", (CHICK), "the hen")                                                    \
    CN_PHASE(CHICK, "food", (HEN, LOST), "the farmer")                                             \
    CN_PHASE(HEN, "spring", (EGG, LOST, CHICK, LOST, LOST, LOST, LOST, LOST), "the hen")           \
    CN_PHASE(LOST, "nothing", (), "the fox")

#define CN_PHASE(name, waits_for, followers, mover) BIRD_##name,
enum bird_phase { TABLE BIRD_ = CN_PHASE_NONE };
#undef CN_PHASE

#define CN_PHASE(name, waits_for, followers, mover)                                                \
    [BIRD_##name] = {#name, CN_PHASE_SET(BIRD_, followers)},
static const struct cn_phase table[] = {TABLE};
#undef CN_PHASE

/* Lists of one, two and eight followers, and an empty one, become the same pairs as they show. */
static void
followers_are_what_the_table_lists(void **state)
{
    static const bool allowed[4][4] = {
        [BIRD_EGG] = {[BIRD_CHICK] = true},
        [BIRD_CHICK] = {[BIRD_HEN] = true, [BIRD_LOST] = true},
        [BIRD_HEN] = {[BIRD_EGG] = true, [BIRD_CHICK] = true, [BIRD_LOST] = true},
    };

    (void)state;
    for (unsigned from = 0; from < 4; from++)
        for (unsigned to = 0; to < 4; to++)
            assert_int_equal(cn_phase_may_follow(table, from, to), allowed[from][to]);
    for (unsigned from = 0; from < 4; from++)
        assert_false(cn_phase_may_follow(table, from, BIRD_));
}

static void
move_follows_the_table(void **state)
{
    uint8_t phase = BIRD_EGG;

    (void)state;
    cn_phase_move(table, "a bird", &phase, BIRD_CHICK);
    assert_int_equal(phase, BIRD_CHICK);
    cn_phase_move(table, "a bird", &phase, BIRD_HEN);
    cn_phase_move(table, "a bird", &phase, BIRD_EGG);
    assert_int_equal(phase, BIRD_EGG);
}

/* A forbidden move is a bug. It ends the process, also in a release build, and says what it was. */
static void
forbidden_move_aborts(void **state)
{
    uint8_t phase = BIRD_EGG;
    char text[200] = "";
    int fds[2], status;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    if ((pid = fork()) == 0) {
        dup2(fds[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        cn_phase_move(table, "a bird", &phase, BIRD_HEN);
        _exit(0);
    }
    close(fds[1]);
    assert_true(read(fds[0], text, sizeof(text) - 1) > 0);
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(text, "a bird is EGG and cannot become HEN"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(followers_are_what_the_table_lists),
        cmocka_unit_test(move_follows_the_table),
        cmocka_unit_test(forbidden_move_aborts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
