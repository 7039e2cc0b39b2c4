/* core/text/number.c - writes numbers as text. Any thread.
 *
 * cn_put_double needs the shortest text that reads back as the same number. It first tries
 * put_short, which handles nearly all numbers in requests and answers with integers alone.
 * Otherwise it prints with 15, 16 and 17 digits until the text reads back as the number; 17 are
 * always enough for a double. */
#include "core/text/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *
cn_put_uint(uint64_t value, char *to)
{
    char digits[20], *const end = digits + sizeof(digits), *at = end;

    do
        *--at = (char)('0' + value % 10);
    while (value /= 10);
    memcpy(to, at, (size_t)(end - at));
    return to + (end - at);
}

char *
cn_put_int(int64_t value, char *to)
{
    if (value >= 0)
        return cn_put_uint((uint64_t)value, to);
    *to++ = '-';
    return cn_put_uint(0 - (uint64_t)value, to);
}

/* Writes a number with at most six digits behind the point, as most numbers in requests are, from
 * integers alone: without printf and without trying several lengths. A text of at most 15 digits
 * that reads back as the number is unique, and the quotient of two whole numbers below 2^53 is
 * rounded exactly as a reader rounds that text. Returns the address behind the text; NULL if the
 * number is not of this kind. */
static char *
put_short(double value, char *to)
{
    const double size = fabs(value), scaled = size * 1e6;
    char text[24], *const end = text + sizeof(text), *at = end;
    uint64_t n;

    if (!(scaled < 1e15) || scaled != floor(scaled) || scaled / 1e6 != size ||
        (size > 0 && size < 1e-4))
        return NULL;
    n = (uint64_t)scaled;
    for (int place = 6; place > 0; place--, n /= 10)
        if (at < end || n % 10 || place == 1) /* no zeros at the end, except in "1.0" */
            *--at = (char)('0' + n % 10);
    *--at = '.';
    do
        *--at = (char)('0' + n % 10);
    while (n /= 10);
    if (signbit(value))
        *--at = '-';
    memcpy(to, at, (size_t)(end - at));
    return to + (end - at);
}

char *
cn_put_double(double value, char *to)
{
    char *end;

    if (isnan(value))
        return stpcpy(to, "NaN");
    if (isinf(value))
        return stpcpy(to, value < 0 ? "-Infinity" : "Infinity");
    if ((end = put_short(value, to)))
        return end;
    for (int digits = 15; digits <= 17; digits++) {
        end = to + snprintf(to, CN_NUMBER_MAX, "%.*g", digits, value);
        if (strtod(to, NULL) == value)
            break;
    }
    return to[strcspn(to, ".e")] ? end : stpcpy(end, ".0");
}

bool
cn_read_uint(struct cn_str text, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;

    for (size_t i = 0; i < text.len; i++) {
        const unsigned digit = (unsigned char)text.ptr[i] - (unsigned)'0';

        if (digit > 9 || digit > max || value > (max - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    if (text.len == 0)
        return false;
    *out = value;
    return true;
}
