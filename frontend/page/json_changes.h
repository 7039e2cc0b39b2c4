/* frontend/page/json_changes.h - what changed between two JSON objects, so that the feed sends only
 * that. Any thread, no state. */
#ifndef CN_FRONTEND_PAGE_JSON_CHANGES_H
#define CN_FRONTEND_PAGE_JSON_CHANGES_H

#include <jansson.h>

/* Returns an object with the members of `now` that `before` lacks or has with another value, and
 * with null for those that only `before` has. NULL: nothing changed. Members are shared with `now`
 * (references), not copied. `before` may be NULL, which counts as empty. */
json_t *cn_changes(const json_t *before, json_t *now);

#endif
