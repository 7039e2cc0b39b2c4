/* doctor/test_support.h - a server's answers as texts, for the tests of this folder. */
#ifndef CN_DOCTOR_TEST_SUPPORT_H
#define CN_DOCTOR_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/memory/buf.h"
#include "doctor/view.h"

#define assert_contains(text, part)                                                                \
    do {                                                                                           \
        if (strstr(text, part) == NULL)                                                            \
            fail_msg("\"%s\" is not in \"%s\"", part, text);                                       \
    } while (0)

/* A worker and a model as `describe` shows them. Each test appends as text the members that it is
 * about. */
#define WORKER(index, state, status, more)                                                         \
    "{\"id\": \"9000\", \"index\": " index ", \"state\": \"" state "\", \"status\": \"" status     \
    "\", \"pid\": 77, \"memoryUsage\": 12345678, \"startTime\": \"2026-11-21T04:36:32.123Z\"" more \
    "}"
#define MODEL(name, version, workers, more)                                                        \
    "{\"modelName\": \"" name "\", \"modelVersion\": \"" version                                   \
    "\", \"minWorkers\": 1, \"maxWorkers\": 2, \"workers\": [" workers "]" more "}"
#define READY_WORKER WORKER("1", "ready", "READY", ", \"restarts\": 0, \"lastExit\": null")

static inline void
view_of(struct cn_ctl_view *view, const char *json)
{
    struct cn_error err;

    cn_ctl_view_init(view);
    assert_int_equal(cn_ctl_view_add(view, cn_str_from(json), NULL, &err), 0);
}

#endif
