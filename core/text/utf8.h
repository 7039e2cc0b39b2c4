/* core/text/utf8.h - checks for UTF-8 (RFC 3629): overlong forms, surrogates and numbers above
 * U+10FFFF are invalid. Any thread. */
#ifndef CN_CORE_TEXT_UTF8_H
#define CN_CORE_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#include "core/text/str.h"

/* The number of bytes of the character at `at`, where there are `left` bytes, at least one. 0: it
 * is not valid. */
size_t cn_utf8_length(const char *at, size_t left);
bool cn_utf8_is_valid(struct cn_str text);
/* Is the text valid and without control characters (U+0000 to U+001F, U+007F to U+009F)? */
bool cn_utf8_is_printable(struct cn_str text);
/* How many bytes, at most `max`, can be shown without cutting a character. */
size_t cn_utf8_cut(struct cn_str text, size_t max);

#endif
