/* core/log/log.c - composes an event as one line and writes it with one write(2) to standard error.
 * Any thread.
 *
 * There is no lock: a single write of a line to a pipe (up to 4 kB), or to a file opened for
 * appending, is not mixed with other writes. That is why an event is cut at 4 kB. The settings are
 * single words that are read and written atomically; a change may be seen one line later.
 *
 * The caller gives key=value text, since that is what people read. For JSON the same text is parsed
 * again (log_json.c). So callers need not know which form the log has, and the time to parse does
 * not matter, because a server logs few lines. */
#include "core/log/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log/log_files.h"
#include "core/log/log_tail.h"
#include "core/text/utf8.h"
#include "core/time/clock.h"

#define LINE_MAX_BYTES 4096

static const char *const level_words[] = {"error", "warn", "info", "debug"};

/* Set at start-up or by the management, read by all threads. */
static unsigned log_levels = (2u << CN_LOG_INFO) - 1; /* one bit for each level */
static const char *log_program = "continuo";
static int log_copy = -1;
static bool log_json, log_one_line;

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
    __atomic_store_n(&log_levels, (2u << level) - 1, __ATOMIC_RELAXED);
}

bool
cn_log_enabled(enum cn_log_level level)
{
    return __atomic_load_n(&log_levels, __ATOMIC_RELAXED) >> level & 1;
}

void
cn_log_enable(enum cn_log_level level, bool on)
{
    if (on)
        __atomic_fetch_or(&log_levels, 1u << level, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(&log_levels, ~(1u << level), __ATOMIC_RELAXED);
}

void
cn_log_set_program(const char *program)
{
    __atomic_store_n(&log_program, program, __ATOMIC_RELAXED);
}

void
cn_log_set_copy(int fd)
{
    __atomic_store_n(&log_copy, fd, __ATOMIC_RELAXED);
}

void
cn_log_set_json(bool json)
{
    __atomic_store_n(&log_json, json, __ATOMIC_RELAXED);
}

void
cn_log_set_one_line(bool one_line)
{
    __atomic_store_n(&log_one_line, one_line, __ATOMIC_RELAXED);
}

/* Copies `text` to `out` and turns a traceback at its end into lines of their own. The mark cannot
 * appear inside another value, because quotes are escaped there. */
static size_t
put_text(const char *text, char *out, size_t room)
{
    static const char mark[] = " traceback=\"", indent[] = "\n    ";
    const char *traceback =
        __atomic_load_n(&log_one_line, __ATOMIC_RELAXED) ? NULL : strstr(text, mark);
    size_t len = traceback ? (size_t)(traceback - text) : strlen(text);
    char lines[LINE_MAX_BYTES];

    len = cn_utf8_cut((struct cn_str){text, len}, room);
    memcpy(out, text, len);
    if (!traceback)
        return len;
    cn_log_unquote(traceback + sizeof(mark) - 1, lines, sizeof(lines));
    for (char *line = lines, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (room - len < sizeof(indent) - 1 + (size_t)(end - line))
            break; /* only whole lines */
        memcpy(out + len, indent, sizeof(indent) - 1);
        len += sizeof(indent) - 1;
        line += strspn(line, "\t");
        for (const char *at = line; at < end; at++) /* no byte may move a terminal's cursor */
            out[len++] = (unsigned char)*at >= 0x20 && *at != 0x7f ? *at : *at == '\t' ? ' ' : '?';
        end += *end == '\n';
    }
    return len;
}

/* Composes one event, with its line end, in `line`, which has LINE_MAX_BYTES. Returns its length.
 */
__attribute__((format(printf, 3, 0))) static size_t
compose(char *line, enum cn_log_level level, const char *fmt, va_list args)
{
    const char *program = __atomic_load_n(&log_program, __ATOMIC_RELAXED);
    bool json = __atomic_load_n(&log_json, __ATOMIC_RELAXED);
    char when[25], text[LINE_MAX_BYTES];
    size_t len, room;
    int n;

    cn_wall_format(cn_wall_ms(), when);
    n = snprintf(line, LINE_MAX_BYTES / 2,
                 json ? "{\"time\":\"%s\",\"level\":\"%s\",\"program\":\"%s\"" : "%s %s %s ", when,
                 level_words[level], program);
    if (n < 0 || n >= LINE_MAX_BYTES / 2)
        return 0;
    len = (size_t)n;
    room = LINE_MAX_BYTES - len;
    n = vsnprintf(text, sizeof(text), fmt, args);
    if (n < 0)
        return 0;
    if (json) {
        line[len++] = ',';
        len += cn_log_json_members(text, line + len, room - 3);
        if (line[len - 1] == ',')
            len--;
        line[len++] = '}';
    } else {
        len += put_text(text, line + len, room - 1);
    }
    line[len++] = '\n';
    return len;
}

void
cn_log(enum cn_log_level level, const char *fmt, ...)
{
    int copy = __atomic_load_n(&log_copy, __ATOMIC_RELAXED);
    char line[LINE_MAX_BYTES];
    va_list args;
    size_t len;

    if (!cn_log_enabled(level))
        return;
    va_start(args, fmt);
    len = compose(line, level, fmt, args);
    va_end(args);
    cn_log_tail_put(level, line, len);
    /* The server goes on if its log cannot be written. */
    if (copy >= 0 && write(copy, line, len) < 0)
        cn_log_files_lost(CN_LOG_SERVER);
    if (write(STDERR_FILENO, line, len) < 0)
        return;
}

void
cn_log_model(enum cn_log_level level, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    va_list args;
    size_t len;

    if (!cn_log_enabled(level))
        return;
    va_start(args, fmt);
    len = compose(line, level, fmt, args);
    va_end(args);
    cn_log_tail_put(level, line, len);
    if (__atomic_load_n(&log_copy, __ATOMIC_RELAXED) >= 0)
        cn_log_files_put(CN_LOG_MODEL, line, len);
    if (write(STDERR_FILENO, line, len) < 0)
        return;
}

/* Undoes cn_log_quote: \n, \r, \t and \xNN are decoded, and any other character behind a backslash
 * stands for itself. */
unsigned long
cn_log_unquote(const char *quoted, char *out, unsigned long out_bytes)
{
    static const char plain[] = {['n'] = '\n', ['r'] = '\r', ['t'] = '\t'};
    unsigned long len = 0;

    for (; *quoted && *quoted != '"' && len + 1 < out_bytes; len++) {
        unsigned char c = (unsigned char)*quoted++;

        if (c == '\\' && quoted[0] == 'x' && cn_hex_digit(quoted[1]) >= 0 &&
            cn_hex_digit(quoted[2]) >= 0) {
            c = (unsigned char)(cn_hex_digit(quoted[1]) << 4 | cn_hex_digit(quoted[2]));
            quoted += 3;
        } else if (c == '\\' && *quoted) {
            c = (unsigned char)*quoted++;
            if (c < sizeof(plain) && plain[c])
                c = (unsigned char)plain[c];
        }
        out[len] = (char)c;
    }
    if (out_bytes)
        out[len] = '\0';
    return len;
}

/* Writes the escape of `c` and returns its length; 0 if it needs none. `is_stray`: the byte is not
 * a part of a UTF-8 character. */
static unsigned
escape(unsigned char c, bool is_stray, char out[4])
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
        if (c >= 0x20 && c != 0x7f && !is_stray)
            return 0;
        out[1] = 'x';
        out[2] = digits[c >> 4];
        out[3] = digits[c & 0x0f];
        return 4;
    }
}

/* A control character could end the line or move a terminal's cursor, so it is written as \n, \r,
 * \t or \xNN. So is a byte that is not valid UTF-8, because a log that is not UTF-8 cannot be read
 * as text or as JSON. A text that is too long is never cut inside an escape or a character. */
const char *
cn_log_quote(const char *text, unsigned long len, char *out, unsigned long out_bytes)
{
    unsigned long i, n, at = 0;

    if (out_bytes < 3) {
        if (out_bytes)
            out[0] = '\0';
        return out;
    }
    out[at++] = '"';
    for (i = 0; i < len; i += n) {
        char escaped[4];
        unsigned n_escaped = 0;

        n = cn_utf8_length(text + i, len - i);
        if (n == 2 && text[i] == '\xc2' && (unsigned char)text[i + 1] < 0xa0)
            n = 0; /* U+0080 to U+009F are control characters, too */
        if (n <= 1)
            n_escaped = escape((unsigned char)text[i], n == 0, escaped);
        n = n ? n : 1;
        if (at + (n_escaped ? n_escaped : n) + 2 > out_bytes) /* the closing quote and the NUL */
            break;
        memcpy(out + at, n_escaped ? escaped : text + i, n_escaped ? n_escaped : n);
        at += n_escaped ? n_escaped : n;
    }
    out[at++] = '"';
    out[at] = '\0';
    return out;
}
