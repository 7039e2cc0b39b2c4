/* core/text/utf8.h - what is UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing past
 * U+10FFFF. Any thread. */
#ifndef CN_CORE_TEXT_UTF8_H
#define CN_CORE_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#include "core/text/str.h"

/* Bytes of the character at `at`, where `left` bytes are, one at least. 0: it is none. */
size_t cn_utf8_length(const char *at, size_t left);
bool cn_utf8_is_valid(struct cn_str text);
/* The same without control characters (U+0000 to U+001F, U+007F to U+009F). */
bool cn_utf8_is_printable(struct cn_str text);
/* How many bytes, `max` at most, may be shown without cutting a character. */
size_t cn_utf8_cut(struct cn_str text, size_t max);

#endif
