/* config/test_support.h - collects warnings, for the tests of this folder. */
#ifndef CN_CONFIG_TEST_SUPPORT_H
#define CN_CONFIG_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct warnings {
    unsigned n;
    char last[1024];
};

static inline void
keep_warning(void *ctx, const char *line)
{
    struct warnings *warnings = ctx;

    warnings->n++;
    snprintf(warnings->last, sizeof(warnings->last), "%s", line);
}

#define assert_contains(text, part)                                                                \
    do {                                                                                           \
        if (strstr(text, part) == NULL)                                                            \
            fail_msg("\"%s\" is not in \"%s\"", part, text);                                       \
    } while (0)

#endif
