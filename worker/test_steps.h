/* worker/test_steps.h - short forms of what the tests of the worker expect of a step. Only tests
 * include it. */
#ifndef CN_WORKER_TEST_STEPS_H
#define CN_WORKER_TEST_STEPS_H

#include "worker/test_client.h"

static inline bool
has(unsigned flags, unsigned flag)
{
    return flags & flag;
}

#define expect_body(c, job, id, cmd, flags, wanted)                                                \
    do {                                                                                           \
        struct got expect_got = client_step(c, job, id, cmd, flags, 0);                            \
        assert_string_equal(expect_got.body, wanted);                                              \
        assert_int_equal(expect_got.code, 0);                                                      \
    } while (0)

#endif
