/* core/text/str.c - compares and checks names, in ASCII only, so that the locale has no influence.
 * Any thread. */
#include "core/text/str.h"

/* 1 for each character of a token: letters, digits and !#$%&'*+-.^_`|~. A row has 32 of them. */
/* clang-format off */
static const bool is_token[256] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0,
    0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 1, 0,
};
/* clang-format on */

bool
cn_is_token_char(char c)
{
    return is_token[(unsigned char)c];
}

size_t
cn_text_token_len(const char *text, size_t len)
{
    size_t n = 0;

    while (n < len && is_token[(unsigned char)text[n]])
        n++;
    return n;
}

bool
cn_str_is_token(struct cn_str text)
{
    return text.len > 0 && cn_text_token_len(text.ptr, text.len) == text.len;
}

/* Is one of these eight bytes a control character? A tab is taken for one here. 0x80 comes out of a
 * byte below 0x20, and of one that is 0x7f. */
static bool
may_have_control(const char *text)
{
    const uint64_t each = 0x0101010101010101u;
    uint64_t bytes, is_delete;

    memcpy(&bytes, text, sizeof(bytes));
    is_delete = bytes ^ (each * 0x7f);
    return (((bytes - each * 0x20) & ~bytes) | ((is_delete - each) & ~is_delete)) & (each * 0x80);
}

size_t
cn_text_without_control(const char *text, size_t len)
{
    const size_t word = sizeof(uint64_t);
    size_t n = 0;

    while (len - n >= word && !may_have_control(text + n))
        n += word;
    if (len - n < word && len >= word && !may_have_control(text + len - word))
        return len;
    while (n < len && !cn_is_control_char(text[n]))
        n++;
    return n;
}

static unsigned char
lower(unsigned char c)
{
    return c >= 'A' && c <= 'Z' ? (unsigned char)(c + ('a' - 'A')) : c;
}

bool
cn_bytes_eq_nocase(const char *a, const char *b, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (a[i] != b[i] && lower((unsigned char)a[i]) != lower((unsigned char)b[i]))
            return false;
    return true;
}

bool
cn_str_begins_nocase(struct cn_str text, struct cn_str with)
{
    return text.len >= with.len && cn_str_eq_nocase((struct cn_str){text.ptr, with.len}, with);
}

static unsigned char
header_char(unsigned char c)
{
    return c == '_' ? '-' : lower(c);
}

bool
cn_bytes_eq_header(const char *a, const char *b, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (a[i] != b[i] && header_char((unsigned char)a[i]) != header_char((unsigned char)b[i]))
            return false;
    return true;
}
