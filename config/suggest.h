/* config/suggest.h - the nearest known name for a misspelt one. Any thread. */
#ifndef CN_CONFIG_SUGGEST_H
#define CN_CONFIG_SUGGEST_H

#include <stddef.h>

#include "core/text/str.h"

/* Single-letter edits (insert, delete, replace, swap of neighbours) from `a` to `b`. Case does not
 * count, nor does `-` against `_`. Words over 63 bytes are as far away as the longer one is long.
 */
unsigned cn_edit_distance(struct cn_str a, struct cn_str b);

/* The nearest of `names`, or NULL when none is within 2 edits and a third of the word. */
const char *cn_suggest(struct cn_str word, const char *const *names, size_t n_names);

#endif
