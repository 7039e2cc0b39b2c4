/* core/text/number.h - numbers as text, without printf where that is slow. Any thread. */
#ifndef CN_CORE_TEXT_NUMBER_H
#define CN_CORE_TEXT_NUMBER_H

#include <stdint.h>

#define CN_NUMBER_MAX 40 /* bytes of room that each of these needs; no text has more than 26 */

/* Write at `to`, without a zero behind it; return the place behind the text. */
char *cn_put_uint(uint64_t value, char *to);
char *cn_put_int(int64_t value, char *to);
/* The shortest text that reads back as the same number. It has a point or an exponent ("1.0"), so
 * that what had a fraction still can have one; NaN, Infinity and -Infinity are these words. */
char *cn_put_double(double value, char *to);

#endif
