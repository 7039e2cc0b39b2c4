/* develop/screen.c - messages for people, in colour on a terminal. One thread. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "develop/develop.h"

static bool
has_colour(int fd)
{
    return isatty(fd) && !getenv("NO_COLOR");
}

void
cn_develop_error(const char *fmt, ...)
{
    const bool colour = has_colour(STDERR_FILENO);
    va_list args;

    fprintf(stderr, "%scontinuo: error: ", colour ? "\033[31m" : "");
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "%s\n", colour ? "\033[0m" : "");
}

void
cn_develop_say(bool good, const char *fmt, ...)
{
    const bool colour = good && has_colour(STDOUT_FILENO);
    va_list args;

    fputs(colour ? "\033[32m" : "", stdout);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    puts(colour ? "\033[0m" : "");
    fflush(stdout);
}
