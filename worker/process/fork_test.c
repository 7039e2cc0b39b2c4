/* worker/process/fork_test.c - tests what a forked worker does not share with its zygote. */
#include "worker/process/fork.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/system/random.h"

enum { SIBLINGS = 3, DRAWN = 16 };

struct drawn {
    unsigned char bytes[DRAWN];
};

static void
draw(int to)
{
    struct drawn drawn;

    cn_random_bytes(drawn.bytes, sizeof(drawn.bytes));
    _exit(write(to, &drawn, sizeof(drawn)) == (ssize_t)sizeof(drawn) ? 0 : 1);
}

/* Does what a zygote does: draws random bytes, so that it holds a page of them, and forks. */
static void
be_the_zygote(int to)
{
    int i;

    cn_random_u64();
    for (i = 0; i < SIBLINGS; i++) {
        pid_t pid = cn_fork_sibling();

        if (pid == 0)
            draw(to);
        if (pid < 0)
            _exit(1);
    }
    draw(to);
}

/* Workers that were forked from one process draw different random bytes, which also differ from
 * that process's. With the page that they inherit, all would draw the same. */
static void
forked_workers_draw_different_bytes(void **state)
{
    struct drawn all[SIBLINGS + 1];
    struct cn_error err = {0};
    int fds[2], status, i, j;
    pid_t zygote;

    (void)state;
    if (cn_fork_check(&err) != 0)
        skip(); /* a sanitizer has a thread, or the kernel lacks something */
    assert_int_equal(pipe(fds), 0);
    zygote = fork();
    assert_true(zygote >= 0);
    if (zygote == 0)
        be_the_zygote(fds[1]);
    close(fds[1]);
    for (i = 0; i <= SIBLINGS; i++) /* the child's siblings are children of this process */
        assert_true(waitpid(-1, &status, 0) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (i = 0; i <= SIBLINGS; i++)
        assert_int_equal(read(fds[0], &all[i], sizeof(all[i])), sizeof(all[i]));
    close(fds[0]);
    for (i = 0; i <= SIBLINGS; i++)
        for (j = 0; j < i; j++)
            assert_memory_not_equal(all[i].bytes, all[j].bytes, DRAWN);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forked_workers_draw_different_bytes),
    };

    return cmocka_run_group_tests_name("worker.fork", tests, NULL, NULL);
}
