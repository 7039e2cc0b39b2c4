/* core/text/str.h - borrowed bytes: a pointer and a length. They do not end with a NUL. Any thread.
 */
#ifndef CN_CORE_TEXT_STR_H
#define CN_CORE_TEXT_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct cn_str {
    const char *ptr; /* may be NULL when len is 0 */
    size_t len;      /* bytes */
};

#define CN_STR(literal) ((struct cn_str){("" literal), sizeof(literal) - 1})
/* The two arguments of printf's "%.*s". */
#define CN_STR_ARG(s) (int)(s).len, (s).ptr ? (s).ptr : ""

static inline struct cn_str
cn_str_from(const char *text)
{
    return (struct cn_str){text, text ? strlen(text) : 0};
}

/* Most texts of the same length differ in their first byte, which saves the call. */
static inline bool
cn_str_eq(struct cn_str a, struct cn_str b)
{
    return a.len == b.len &&
           (a.len == 0 || (a.ptr[0] == b.ptr[0] && memcmp(a.ptr, b.ptr, a.len) == 0));
}

/* The value of a hexadecimal digit, 0 to 15; -1 for any other character. */
static inline int
cn_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20; /* lower case, if it is a letter */
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static inline bool
cn_str_begins(struct cn_str text, struct cn_str with)
{
    return text.len >= with.len && (with.len == 0 || memcmp(text.ptr, with.ptr, with.len) == 0);
}

/* Takes the part before the next `separator` off the beginning of `rest`, and the separator, too.
 * If there is no separator, it takes all of `rest`. */
static inline struct cn_str
cn_str_cut(struct cn_str *rest, char separator)
{
    const char *end = rest->len ? memchr(rest->ptr, separator, rest->len) : NULL;
    const struct cn_str part = {rest->ptr, end ? (size_t)(end - rest->ptr) : rest->len};

    if (end)
        *rest = (struct cn_str){end + 1, rest->len - part.len - 1};
    else if (part.len)
        *rest = (struct cn_str){rest->ptr + part.len, 0};
    return part;
}

/* Returns the text without blanks and tabs at both ends. */
static inline struct cn_str
cn_str_trim(struct cn_str text)
{
    while (text.len > 0 && (text.ptr[0] == ' ' || text.ptr[0] == '\t')) {
        text.ptr++;
        text.len--;
    }
    while (text.len > 0 && (text.ptr[text.len - 1] == ' ' || text.ptr[text.len - 1] == '\t'))
        text.len--;
    return text;
}

/* Is it a control character? A tab is not, because header values and texts may have tabs. */
static inline bool
cn_is_control_char(char c)
{
    return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f;
}

/* Returns how many bytes stand before the first control character; `len` if there is none. */
size_t cn_text_without_control(const char *text, size_t len);
/* May the character stand in a method or in a header's name (RFC 9110, 5.6.2: a token)? */
bool cn_is_token_char(char c);
/* How many bytes at the beginning of the text are such characters? */
size_t cn_text_token_len(const char *text, size_t len);
/* Is the text a token: at least one such character, and no other? */
bool cn_str_is_token(struct cn_str text);
/* Are `len` bytes the same without regard to case? */
bool cn_bytes_eq_nocase(const char *a, const char *b, size_t len);
/* Compares without regard to case, in ASCII only. `-` and `_` are different. Inline, because most
 * texts that are compared differ in their length. */
static inline bool
cn_str_eq_nocase(struct cn_str a, struct cn_str b)
{
    return a.len == b.len && cn_bytes_eq_nocase(a.ptr, b.ptr, a.len);
}
/* Does the text begin with `with`, without regard to case? */
bool cn_str_begins_nocase(struct cn_str text, struct cn_str with);
/* Are `len` bytes of two header names the same? */
bool cn_bytes_eq_header(const char *a, const char *b, size_t len);
/* Compares header names: like cn_str_eq_nocase, but `-` equals `_`, since clients of the two API
 * families spell the names differently. */
static inline bool
cn_str_eq_header(struct cn_str a, struct cn_str b)
{
    return a.len == b.len && cn_bytes_eq_header(a.ptr, b.ptr, a.len);
}

#endif
