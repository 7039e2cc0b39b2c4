/* core/text/number.c - writes numbers as text. Any thread.
 *
 * cn_put_double writes a number with 15, 16 or 17 digits: the first of them that read back as the
 * same number. 17 are always enough for a double. put_short does this for most numbers that people
 * write, and put_long for those that models compute, with integers alone. Very large and very small
 * numbers are left to printf and strtod, which take many times as long. */
#define _GNU_SOURCE 1 /* mempcpy */
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

/* Writes the number that has these digits, the first of them before the point, times 10^exponent.
 * The text is that of printf's %g, but a whole number gets ".0". */
static char *
put_digits(uint64_t digits, int exponent, char *to)
{
    const int point = exponent + 1; /* how many digits are before the point, if not below 0.0001 */
    char text[20];
    int n;

    while (digits % 10 == 0)
        digits /= 10;
    n = (int)(cn_put_uint(digits, text) - text);
    if (exponent < -4) {
        *to++ = text[0];
        if (n > 1) {
            *to++ = '.';
            to = mempcpy(to, text + 1, (size_t)n - 1);
        }
        return cn_put_uint((uint64_t)-exponent, stpcpy(to, exponent > -10 ? "e-0" : "e-"));
    }
    if (point <= 0) {
        to = mempcpy(to, "0.0000", (size_t)(2 - point));
        return mempcpy(to, text, (size_t)n);
    }
    if (n <= point) {
        to = mempcpy(to, text, (size_t)n);
        memset(to, '0', (size_t)(point - n));
        return stpcpy(to + point - n, ".0");
    }
    to = mempcpy(to, text, (size_t)point);
    *to++ = '.';
    return mempcpy(to, text + point, (size_t)(n - point));
}

static uint64_t
power_of_five(int k)
{
    uint64_t power = 1;

    for (uint64_t base = 5; k; base *= base, k >>= 1)
        power *= k & 1 ? base : 1;
    return power;
}

/* Writes a number from 1e-10 up to 1e15 and returns the address behind the text; NULL for others.
 *
 * The number is m * 2^e, with m of 53 bits. Times 10^k, which leaves 17 digits before the point, it
 * is m * 5^k * 2^(e + k). That is exact / 2^shift, where `exact` has at most 117 bits. The doubles
 * beside it are 5^k away from `exact`, or half of that if m is the smallest and they are below. A
 * text reads back as this number if it is nearer than half of the distance. 5^k is odd, so that no
 * text is in the middle between two doubles. */
static char *
put_long(double value, char *to)
{
    const uint64_t power = UINT64_C(100000000000000000); /* 10^17 */
    const double size = fabs(value);
    unsigned __int128 exact, half, rest, text;
    uint64_t m, five, whole, rounded;
    int two, exponent, shift;

    if (!(size >= 1e-10 && size < 1e15))
        return NULL;
    m = (uint64_t)ldexp(frexp(size, &two), 53);
    exponent = ((two - 1) * 1233) >> 12; /* that of 2^(two - 1); the number's may be one more */
    do {
        five = power_of_five(16 - exponent);
        exact = (unsigned __int128)m * five;
        shift = 53 - two - (16 - exponent);
        whole = (uint64_t)(exact >> shift);
    } while (whole >= power && ++exponent);
    rest = exact - ((unsigned __int128)whole << shift);
    half = (unsigned __int128)1 << (shift - 1);
    for (uint64_t step = 100;; step /= 10) {
        const uint64_t below = whole % step;
        const bool odd = whole / step % 2;
        const bool up = step > 1 ? below > step / 2 || (below == step / 2 && (rest > 0 || odd))
                                 : rest > half || (rest == half && odd);

        rounded = whole - below + (up ? step : 0);
        text = (unsigned __int128)rounded << shift;
        if (step == 1 || (text >= exact ? (text - exact) * 2 < five
                                        : (exact - text) * (m == UINT64_C(1) << 52 ? 4 : 2) < five))
            break;
    }
    if (signbit(value))
        *to++ = '-';
    return put_digits(rounded, exponent + (rounded == power), to);
}

char *
cn_put_double(double value, char *to)
{
    char *end;

    if (isnan(value))
        return stpcpy(to, "NaN");
    if (isinf(value))
        return stpcpy(to, value < 0 ? "-Infinity" : "Infinity");
    if ((end = put_short(value, to)) || (end = put_long(value, to)))
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
