/* handlers/modules/module_values.c - reads and writes elements of tensors as numbers. Any thread.
 *
 * FP16 has 1 bit for the sign, 5 for the exponent (with 15 added) and 10 for the fraction; BF16 is
 * the upper half of an FP32. C has no type for either, so they are converted here: 1.0 is 0x3c00 as
 * FP16 and 0x3f80 as BF16. The probe, nanPolicy and numbers that a module keeps need these
 * functions; other tensors are only copied. */
#include "handlers/modules/module_values.h"

#include <math.h>
#include <string.h>

bool
cn_module_is_float(enum cn_datatype type)
{
    return type == CN_DATATYPE_FP16 || type == CN_DATATYPE_BF16 || type == CN_DATATYPE_FP32 ||
           type == CN_DATATYPE_FP64;
}

/* --- 16 bits --- */

static double
half_value(uint16_t bits)
{
    const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    double value = exponent == 31  ? (fraction ? NAN : INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(1024 + fraction, exponent - 25);

    return bits & 0x8000 ? -value : value;
}

/* Cuts the bits off instead of rounding, which is good enough for random inputs.
 *
 * frexp() gives a fraction from 0.5 on, and the format wants one from 1 on, so 14 is added to the
 * exponent and not 15. fraction * 2048 has 11 bits; the first one is always 1, and the format does
 * not store it. */
static uint16_t
half_bits(double value)
{
    const uint16_t sign = value < 0 ? 0x8000 : 0;
    int exponent;
    double fraction = frexp(fabs(value), &exponent); /* it is 0.5 to 1 */

    if (value == 0 || exponent < -13) /* values below the normal numbers become 0 */
        return sign;
    if (exponent > 16)
        return sign | 0x7bff; /* the largest value */
    return (uint16_t)(sign | (unsigned)(exponent + 14) << 10 |
                      ((unsigned)(fraction * 2048) & 1023));
}

static double
brain_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof(value));
    return (double)value;
}

static uint16_t
brain_bits(double value)
{
    float narrow = (float)value;
    uint32_t bits;

    memcpy(&bits, &narrow, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

/* --- any type --- */

#define GET(type)                                                                                  \
    do {                                                                                           \
        type value;                                                                                \
        memcpy(&value, data + i * sizeof(value), sizeof(value));                                   \
        return (double)value;                                                                      \
    } while (0)

#define GET_BY(type, convert)                                                                      \
    do {                                                                                           \
        type value;                                                                                \
        memcpy(&value, data + i * sizeof(value), sizeof(value));                                   \
        return convert(value);                                                                     \
    } while (0)

#define PUT(type, given)                                                                           \
    do {                                                                                           \
        type put = (type)(given);                                                                  \
        memcpy(data + i * sizeof(put), &put, sizeof(put));                                         \
        return;                                                                                    \
    } while (0)

double
cn_module_value(enum cn_datatype type, const char *data, size_t i)
{
    switch (type) {
    case CN_DATATYPE_BOOL:
    case CN_DATATYPE_UINT8:
        GET(uint8_t);
    case CN_DATATYPE_UINT16:
        GET(uint16_t);
    case CN_DATATYPE_UINT32:
        GET(uint32_t);
    case CN_DATATYPE_UINT64:
        GET(uint64_t);
    case CN_DATATYPE_INT8:
        GET(int8_t);
    case CN_DATATYPE_INT16:
        GET(int16_t);
    case CN_DATATYPE_INT32:
        GET(int32_t);
    case CN_DATATYPE_INT64:
        GET(int64_t);
    case CN_DATATYPE_FP32:
        GET(float);
    case CN_DATATYPE_FP64:
        GET(double);
    case CN_DATATYPE_FP16:
        GET_BY(uint16_t, half_value);
    case CN_DATATYPE_BF16:
        GET_BY(uint16_t, brain_value);
    default:
        return 0;
    }
}

void
cn_module_value_put(enum cn_datatype type, char *data, size_t i, double value)
{
    switch (type) {
    case CN_DATATYPE_BOOL:
        PUT(uint8_t, value >= 0.5);
    case CN_DATATYPE_UINT8:
        PUT(uint8_t, value);
    case CN_DATATYPE_UINT16:
        PUT(uint16_t, value);
    case CN_DATATYPE_UINT32:
        PUT(uint32_t, value);
    case CN_DATATYPE_UINT64:
        PUT(uint64_t, value);
    case CN_DATATYPE_INT8:
        PUT(int8_t, value);
    case CN_DATATYPE_INT16:
        PUT(int16_t, value);
    case CN_DATATYPE_INT32:
        PUT(int32_t, value);
    case CN_DATATYPE_INT64:
        PUT(int64_t, value);
    case CN_DATATYPE_FP32:
        PUT(float, value);
    case CN_DATATYPE_FP64:
        PUT(double, value);
    case CN_DATATYPE_FP16:
        PUT(uint16_t, half_bits(value));
    case CN_DATATYPE_BF16:
        PUT(uint16_t, brain_bits(value));
    default:
        return;
    }
}

double
cn_module_tolerance(enum cn_datatype type)
{
    switch (type) {
    case CN_DATATYPE_BF16:
        return 0.1;
    case CN_DATATYPE_FP16:
        return 0.02;
    case CN_DATATYPE_FP32:
        return 1e-4;
    case CN_DATATYPE_FP64:
        return 1e-9;
    default:
        return 0;
    }
}

/* Returns how far two tensors are apart, as a share of the largest magnitude in either: compared
 * one by one, a tiny element beside a large one would look completely different after rounding.
 * Integers have no rounding, so for them the plain difference counts. A NaN is like another NaN,
 * and unlike everything else. */
double
cn_module_distance(enum cn_datatype type, const char *a, const char *b, size_t n)
{
    double apart = 0, magnitude = 0;

    if (n == 0 || memcmp(a, b, n * cn_datatype_bytes(type)) == 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        double x = cn_module_value(type, a, i), y = cn_module_value(type, b, i);

        if (x == y || (isnan(x) && isnan(y)))
            continue;
        if (!isfinite(x) || !isfinite(y))
            return INFINITY;
        apart = fmax(apart, fabs(x - y));
    }
    for (size_t i = 0; i < n; i++) {
        double x = fabs(cn_module_value(type, a, i)), y = fabs(cn_module_value(type, b, i));

        magnitude = fmax(magnitude, fmax(isfinite(x) ? x : 0, isfinite(y) ? y : 0));
    }
    if (!cn_module_is_float(type))
        return apart; /* large 64-bit integers are compared as doubles, exactly enough */
    return magnitude > 0 ? apart / magnitude : apart;
}

bool
cn_module_has_no_number(enum cn_datatype type, const char *data, size_t n)
{
    if (!cn_module_is_float(type))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(cn_module_value(type, data, i)))
            return true;
    return false;
}
