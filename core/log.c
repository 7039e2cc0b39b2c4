/* core/log.c - one event, one line, one write(2) to stderr. Any thread, no lock: a write of one
 * line to a pipe or a file opened for appending is not torn by others. */
#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"

#define LINE_MAX_BYTES 4096

static const char *const level_words[] = {"error", "warn", "info", "debug"};

/* Set at start-up or by management, read by all threads. */
static int log_level = CN_LOG_INFO;
static const char *log_program = "continuo";

int
cn_log_level_parse(const char *word)
{
    int i;

    for (i = 0; i < 4; i++)
        if (word && strcmp(word, level_words[i]) == 0)
            return i;
    return -1;
}

void
cn_log_set_level(enum cn_log_level level)
{
    __atomic_store_n(&log_level, (int)level, __ATOMIC_RELAXED);
}

bool
cn_log_enabled(enum cn_log_level level)
{
    return (int)level <= __atomic_load_n(&log_level, __ATOMIC_RELAXED);
}

void
cn_log_set_program(const char *program)
{
    __atomic_store_n(&log_program, program, __ATOMIC_RELAXED);
}

void
cn_log(enum cn_log_level level, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES], when[25];
    size_t len, room;
    va_list args;
    int n;

    if (!cn_log_enabled(level))
        return;
    cn_wall_format(cn_wall_ms(), when);
    n = snprintf(line, sizeof(line) / 2, "%s %s %s ", when, level_words[level],
                 __atomic_load_n(&log_program, __ATOMIC_RELAXED));
    if (n < 0 || (size_t)n >= sizeof(line) / 2)
        return;
    len = (size_t)n;
    room = sizeof(line) - len; /* the NUL's place becomes the line end */
    va_start(args, fmt);
    n = vsnprintf(line + len, room, fmt, args);
    va_end(args);
    if (n < 0)
        return;
    len += (size_t)n < room ? (size_t)n : room - 1;
    line[len++] = '\n';
    /* A log that cannot be written is no reason to stop serving. */
    if (write(STDERR_FILENO, line, len) < 0)
        return;
}

/* Writes the escape of `c` and returns its length; 0 when it needs none. */
static unsigned
escape(unsigned char c, char out[4])
{
    static const char digits[] = "0123456789abcdef";

    out[0] = '\\';
    switch (c) {
    case '"':
    case '\\':
        out[1] = (char)c;
        return 2;
    case '\n':
        out[1] = 'n';
        return 2;
    case '\r':
        out[1] = 'r';
        return 2;
    case '\t':
        out[1] = 't';
        return 2;
    default:
        if (c >= 0x20 && c != 0x7f)
            return 0;
        out[1] = 'x';
        out[2] = digits[c >> 4];
        out[3] = digits[c & 0x0f];
        return 4;
    }
}

const char *
cn_log_quote(const char *text, unsigned long len, char *out, unsigned long out_bytes)
{
    unsigned long i, at = 0;

    if (out_bytes < 3) {
        if (out_bytes)
            out[0] = '\0';
        return out;
    }
    out[at++] = '"';
    for (i = 0; i < len; i++) {
        char escaped[4];
        unsigned n = escape((unsigned char)text[i], escaped);

        if (at + (n ? n : 1) + 2 > out_bytes) /* the closing quote and the NUL */
            break;
        if (n == 0)
            out[at++] = text[i];
        memcpy(out + at, escaped, n);
        at += n;
    }
    out[at++] = '"';
    out[at] = '\0';
    return out;
}
