/* core/text/suggest.h - finds the known name that is nearest to a misspelt one. Any thread. */
#ifndef CN_CORE_TEXT_SUGGEST_H
#define CN_CORE_TEXT_SUGGEST_H

#include <stddef.h>

#include "core/text/str.h"

/* The number of single-letter edits (insert, delete, replace, swap of neighbours) that turn `a`
 * into `b`. Case does not count, nor does `-` against `_`. If one of the words has over 63 bytes,
 * the distance is the length of the longer one. */
unsigned cn_edit_distance(struct cn_str a, struct cn_str b);

/* Returns the nearest of `names`. It may be 2 edits away, but not more than a third of the word's
 * length, or 4 edits if the word has 12 letters or more. If no name is so near: the only name that
 * begins with the word, or with which the word begins (at least 4 letters). NULL: there is none. */
const char *cn_suggest(struct cn_str word, const char *const *names, size_t n_names);

#endif
