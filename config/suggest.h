/* config/suggest.h - finds the known name that is nearest to a misspelt one. Any thread. */
#ifndef CN_CONFIG_SUGGEST_H
#define CN_CONFIG_SUGGEST_H

#include <stddef.h>

#include "core/text/str.h"

/* The number of single-letter edits (insert, delete, replace, swap of neighbours) that turn `a`
 * into `b`. Case does not count, nor does `-` against `_`. If one of the words has over 63 bytes,
 * the distance is the length of the longer one. */
unsigned cn_edit_distance(struct cn_str a, struct cn_str b);

/* The nearest of `names`; NULL if none is within 2 edits, and within a third of the word's length.
 */
const char *cn_suggest(struct cn_str word, const char *const *names, size_t n_names);

#endif
