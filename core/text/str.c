/* core/text/str.c - compares and checks names, in ASCII only, so that the locale has no influence.
 * Any thread. */
#include "core/text/str.h"

bool
cn_is_token_char(char c)
{
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return true;
    return c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

bool
cn_str_is_token(struct cn_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!cn_is_token_char(text.ptr[i]))
            return false;
    return text.len > 0;
}

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
