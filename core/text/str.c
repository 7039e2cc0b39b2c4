/* core/text/str.c - compares names, in ASCII only, so that the locale has no influence. Any thread.
 */
#include "core/text/str.h"

static unsigned char
lower(unsigned char c)
{
    return c >= 'A' && c <= 'Z' ? (unsigned char)(c + ('a' - 'A')) : c;
}

bool
cn_str_eq_nocase(struct cn_str a, struct cn_str b)
{
    size_t i;

    if (a.len != b.len)
        return false;
    for (i = 0; i < a.len; i++)
        if (lower((unsigned char)a.ptr[i]) != lower((unsigned char)b.ptr[i]))
            return false;
    return true;
}

static unsigned char
header_char(unsigned char c)
{
    return c == '_' ? '-' : lower(c);
}

bool
cn_str_eq_header(struct cn_str a, struct cn_str b)
{
    size_t i;

    if (a.len != b.len)
        return false;
    for (i = 0; i < a.len; i++)
        if (header_char((unsigned char)a.ptr[i]) != header_char((unsigned char)b.ptr[i]))
            return false;
    return true;
}
