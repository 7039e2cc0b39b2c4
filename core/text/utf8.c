/* core/text/utf8.c - checks for UTF-8. Any thread, no state.
 *
 * The valid characters by their first byte (RFC 3629, section 4); further bytes are 80 to bf:
 *   00 to 7f             1 byte
 *   c2 to df             2 bytes
 *   e0                   3 bytes, the second from a0 (below that it would be overlong)
 *   e1 to ec, ee, ef     3 bytes
 *   ed                   3 bytes, the second up to 9f (above that are surrogates)
 *   f0                   4 bytes, the second from 90 (below that it would be overlong)
 *   f1 to f3             4 bytes
 *   f4                   4 bytes, the second up to 8f (above that is U+110000) */
#include "core/text/utf8.h"

size_t
cn_utf8_length(const char *text, size_t left)
{
    const unsigned char *at = (const unsigned char *)text;
    unsigned char low = 0x80, high = 0xbf;
    size_t len;

    if (at[0] < 0x80)
        return 1;
    if (at[0] < 0xc2 || at[0] > 0xf4)
        return 0;
    len = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    /* The second byte excludes overlong forms, surrogates and numbers above U+10FFFF. */
    if (at[0] == 0xe0)
        low = 0xa0;
    else if (at[0] == 0xed)
        high = 0x9f;
    else if (at[0] == 0xf0)
        low = 0x90;
    else if (at[0] == 0xf4)
        high = 0x8f;
    if (left < len || at[1] < low || at[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

bool
cn_utf8_is_valid(struct cn_str text)
{
    size_t i = 0, len;

    while (i < text.len) {
        if ((unsigned char)text.ptr[i] < 0x80) { /* most bytes, in large bodies too */
            i++;
            continue;
        }
        if ((len = cn_utf8_length(text.ptr + i, text.len - i)) == 0)
            return false;
        i += len;
    }
    return true;
}

size_t
cn_utf8_cut(struct cn_str text, size_t max)
{
    if (text.len <= max)
        return text.len;
    while (max > 0 && ((unsigned char)text.ptr[max] & 0xc0) == 0x80)
        max--;
    return max;
}

/* Is the character a control character? `text` points to a valid one. */
static bool
is_control(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    return at[0] < 0x20 || at[0] == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0);
}

bool
cn_utf8_is_printable(struct cn_str text)
{
    size_t len;

    for (size_t i = 0; i < text.len; i += len) {
        len = 1;
        if (text.ptr[i] >= ' ' && text.ptr[i] <= '~') /* most bytes of an id */
            continue;
        len = cn_utf8_length(text.ptr + i, text.len - i);
        if (len == 0 || is_control(text.ptr + i))
            return false;
    }
    return true;
}
