/* core/text/number.h - writes numbers as text, without printf where that would be slow, and reads
 * those that clients write. Any thread. */
#ifndef CN_CORE_TEXT_NUMBER_H
#define CN_CORE_TEXT_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text/str.h"

#define CN_NUMBER_MAX 40 /* the room that each function needs; no text has more than 26 bytes */

/* Write a number at `to`, without a NUL. Return the address behind the text. */
char *cn_put_uint(uint64_t value, char *to);
char *cn_put_int(int64_t value, char *to);
/* Writes the shortest text that reads back as the same number. It always has a point or an exponent
 * ("1.0"), so that a reader still takes it for a floating-point number. NaN, Infinity and -Infinity
 * are written as these words. */
char *cn_put_double(double value, char *to);

/* Reads a text that is a decimal number from 0 to `max` and nothing else: only digits, at least
 * one. Returns false, and leaves `out` as it was, for any other text. */
bool cn_read_uint(struct cn_str text, uint64_t max, uint64_t *out);

#endif
