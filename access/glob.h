/* access/glob.h - patterns for the names of models. Any thread. */
#ifndef CN_ACCESS_GLOB_H
#define CN_ACCESS_GLOB_H

#include <stdbool.h>

#include "core/text/str.h"

/* Does the whole text match the pattern? `*` stands for any characters, also for none, and `?` for
 * one byte; every other byte stands for itself. The time is at most the product of both lengths. */
bool cn_glob_matches(struct cn_str pattern, struct cn_str text);

#endif
