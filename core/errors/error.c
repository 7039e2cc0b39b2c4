/* core/errors/error.c - fills a struct cn_error, and holds the table of the codes. Any thread. */
#include "core/errors/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/text/utf8.h"

/* Makes the text one line of valid UTF-8, since it is shown in logs, headers and JSON, and may
 * contain bytes from outside. Line ends become spaces. Where the text was cut, it ends before the
 * character that was cut. Other bytes that are not UTF-8, for example where an argument was cut,
 * become question marks. */
static void
make_one_line(char *text, size_t len, int was_cut)
{
    size_t i, n, start = len;

    for (i = 0; i < len; i++)
        if (text[i] == '\n' || text[i] == '\r')
            text[i] = ' ';
    if (was_cut) {
        while (start > 0 && len - start < 4 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
            start--;
        if (start > 0 && (unsigned char)text[start - 1] >= 0xc0)
            len = start - 1;
    }
    for (i = 0; i < len; i += n) {
        n = cn_utf8_length(text + i, len - i);
        if (n == 0) {
            text[i] = '?';
            n = 1;
        }
    }
    while (len > 0 && text[len - 1] == ' ')
        len--;
    text[len] = '\0';
}

/* Formats into a buffer of its own, because an argument may be the old err->message. */
__attribute__((format(printf, 5, 0))) static void
fill(struct cn_error *err, int code, int sys_errno, const char *tail, const char *fmt, va_list args)
{
    char text[CN_ERROR_MESSAGE_MAX];
    int n = vsnprintf(text, sizeof(text), fmt, args);
    size_t len;

    if (n < 0)
        n = snprintf(text, sizeof(text), "%s", cn_error_info(code)->word);
    len = (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
    if (tail) {
        int more = snprintf(text + len, sizeof(text) - len, ": %s", tail);

        n += more > 0 ? more : 0;
        len = strlen(text);
    }
    make_one_line(text, len, (size_t)n >= sizeof(text));
    err->code = code;
    err->sys_errno = sys_errno;
    memcpy(err->message, text, strlen(text) + 1);
}

int
cn_fail(struct cn_error *err, int code, const char *fmt, ...)
{
    va_list args;

    if (!err)
        return code;
    va_start(args, fmt);
    fill(err, code, 0, NULL, fmt, args);
    va_end(args);
    return code;
}

int
cn_fail_sys(struct cn_error *err, int code, int sys_errno, const char *fmt, ...)
{
    char space[128];
    va_list args;

    if (!err)
        return code;
    va_start(args, fmt);
    fill(err, code, sys_errno, strerror_r(sys_errno, space, sizeof(space)), fmt, args);
    va_end(args);
    return code;
}

static const struct cn_error_info infos[] = {
#define CN_ERROR(code, word, http, grpc, type) {code, word, http, grpc, type},
#include "core/errors/errors.def"
#undef CN_ERROR
};

/* Codes count up from CN_E_FIRST_ in the order of errors.def, so a code is an index of the table.
 */
const struct cn_error_info *
cn_error_info(int code)
{
    const int count = (int)(sizeof(infos) / sizeof(infos[0]));
    int first = CN_E_FIRST_ + 1;

    if (code < first || code >= first + count)
        code = CN_E_INTERNAL;
    return &infos[code - first];
}
