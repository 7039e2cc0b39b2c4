/* access/glob.c - patterns for the names of models. Any thread, no state.
 *
 * Only the last `*` is ever tried again: what an earlier one has matched can stay as short as
 * possible, because the later one takes whatever is left over. So there is no recursion, and a
 * pattern such as "a*a*a*b" costs no exponential time. */
#include "access/glob.h"

bool
cn_glob_matches(struct cn_str pattern, struct cn_str text)
{
    size_t p = 0, t = 0, star = pattern.len, tried = 0; /* star: none yet */

    while (t < text.len) {
        if (p < pattern.len && pattern.ptr[p] == '*') {
            star = p++;
            tried = t;
        } else if (p < pattern.len && (pattern.ptr[p] == '?' || pattern.ptr[p] == text.ptr[t])) {
            p++;
            t++;
        } else if (star < pattern.len) { /* the star takes one byte more */
            p = star + 1;
            t = ++tried;
        } else {
            return false;
        }
    }
    while (p < pattern.len && pattern.ptr[p] == '*')
        p++;
    return p == pattern.len;
}
