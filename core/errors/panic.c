/* core/errors/panic.c - prints the last line of a process that found a bug in itself. Any thread.
 */
#include "core/errors/panic.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Uses no allocation, no lock and no stdio stream, because the heap may be what is broken. The text
 * is cut to the buffer, always with a line end, and written in one call, since the server reads a
 * worker's last lines. */
_Noreturn void
cn_panic(const char *file, int line, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    size_t len;
    int n;

    n = snprintf(text, sizeof(text), "panic at %s:%d: ", file, line);
    len = n > 0 ? (size_t)n : 0;
    if (len > sizeof(text) - 2)
        len = sizeof(text) - 2;
    va_start(args, fmt);
    n = vsnprintf(text + len, sizeof(text) - 1 - len, fmt, args);
    va_end(args);
    if (n > 0)
        len += (size_t)n;
    if (len > sizeof(text) - 2)
        len = sizeof(text) - 2;
    text[len++] = '\n';
    if (write(STDERR_FILENO, text, len) < 0)
        abort();
    abort();
}
