/* kserve/json/json_numbers.c - reads arrays of numbers: one pass finds where they begin and end,
 * another one converts them.
 *
 * cn_v2_cut() turns {"inputs":[{"name":"X","data":[1,2,3]}]} into the head
 * {"inputs":[{"name":"X","data":[0]}]} and a list with the text [1,2,3]. The head is an ordinary
 * document; its [0] says which array belongs there. An array is cut out only after the key "data"
 * at the depth where inputs have it; a "data" elsewhere is left in the head. Fields are found in
 * the same way. A key of theirs, at their depth, whose value cannot be cut out ends the attempt, so
 * that the document never has two values of which only one is cut out.
 *
 * cn_v2_numbers() checks the grammar of JSON while it converts, because nobody else sees this text.
 * Converting uses two exact operations where that is enough: a number of at most 2^53 and a power
 * of ten of at most 10^22 are exact as double, so one multiplication or division gives the
 * correctly rounded result. All other numbers go to strtod.
 *
 * The scanners need no end pointer, since the bracket that closes the array ends each of their
 * loops.
 */
#include "kserve/json/json_numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/tuning/tuning.h"
#include "kserve/json/json_words.h"

_Static_assert(CN_V2_CUTS_MAX <= 100, "an array's number has two digits");

#define DATA_DEPTH 3                  /* {"inputs":[{"data": */
#define PARAMETER_DEPTH 2             /* {"parameters":{"sequence_id": */
#define DIGITS_MAX 18                 /* integers of this many digits fit into 64 bits */
#define NUMBER_MAX 64                 /* most bytes of a number that is read by strtod */
#define EXACT_MAX 22                  /* the largest power of ten that is exact as double */
#define WHOLE_MAX (UINT64_C(1) << 53) /* up to here each integer is exact as double */

/* --- finding the arrays */

/* The characters that may stand between the brackets of an array of numbers. */
static const bool of_numbers[256] = {
    ['0'] = true, ['1'] = true,  ['2'] = true,  ['3'] = true, ['4'] = true, ['5'] = true,
    ['6'] = true, ['7'] = true,  ['8'] = true,  ['9'] = true, ['+'] = true, ['-'] = true,
    ['.'] = true, ['e'] = true,  ['E'] = true,  [','] = true, ['['] = true, [']'] = true,
    [' '] = true, ['\n'] = true, ['\r'] = true, ['\t'] = true};

static bool
is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Returns the position after the bracket that closes the array at `at`; NULL when it holds anything
 * but numbers. */
static const char *
array_end(const char *at, const char *end)
{
    int depth = 0;

    for (; at < end && of_numbers[(unsigned char)*at]; at++) {
        if (*at == '[' && ++depth > CN_V2_DEPTH_MAX - DATA_DEPTH)
            return NULL;
        if (*at == ']' && --depth == 0)
            return at + 1;
    }
    return NULL;
}

/* Returns the quote that closes the string which begins at `at`; NULL when there is none, or an
 * escape comes before it. Escapes could write "data" in another way, which this scanner would not
 * recognise. */
static const char *
string_end(const char *at, const char *end)
{
    const char *quote = memchr(at, '"', (size_t)(end - at));

    return quote && !memchr(at, '\\', (size_t)(quote - at)) ? quote : NULL;
}

/* Returns the beginning of the value after a key whose closing quote is at `at`; NULL when the text
 * is not a key. */
static const char *
value_behind(const char *at, const char *end)
{
    int colons = 0;

    for (at++; at < end && (is_blank(*at) || (*at == ':' && colons++ == 0)); at++)
        ;
    return at < end && colons == 1 ? at : NULL;
}

/* Returns the position after the text or number at `at`, which is a field's value; NULL when it is
 * another one, or unusual. */
static const char *
field_end(const char *at, const char *end, enum cn_v2_field field)
{
    const char *const from = at;

    if (*at == '"' && field != CN_V2_FIELD_SEQUENCE_STEP) {
        for (at++; at < end && *at >= ' ' && *at <= '~' && *at != '"' && *at != '\\'; at++)
            ;
        return at < end && *at == '"' ? at + 1 : NULL;
    }
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return field != CN_V2_FIELD_ID && at > from && at - from <= DIGITS_MAX &&
                   (*from != '0' || at - from == 1) && at < end &&
                   (*at == ',' || *at == '}' || is_blank(*at))
               ? at
               : NULL;
}

/* Returns which field a string at this depth is the key of; CN_V2_N_FIELDS: none. */
static enum cn_v2_field
field_of(struct cn_str key, int depth)
{
    if (depth == 1 && cn_str_eq(key, CN_STR("id")))
        return CN_V2_FIELD_ID;
    if (depth == PARAMETER_DEPTH && cn_str_eq(key, CN_STR("sequence_id")))
        return CN_V2_FIELD_SEQUENCE_ID;
    if (depth == PARAMETER_DEPTH && cn_str_eq(key, CN_STR("sequence_step")))
        return CN_V2_FIELD_SEQUENCE_STEP;
    return CN_V2_N_FIELDS;
}

/* Appends a part of the request to the head. Returns false when the head becomes too long. */
static bool
keep(struct cn_v2_cuts *cuts, const char *from, const char *to)
{
    const size_t len = (size_t)(to - from);

    if (len > sizeof(cuts->head) - cuts->head_len)
        return false;
    memcpy(cuts->head + cuts->head_len, from, len);
    cuts->head_len += len;
    return true;
}

/* Adds an array to the list, and its number to the head. */
static bool
cut_out(struct cn_v2_cuts *cuts, const char *from, const char *to)
{
    const uint32_t i = cuts->n;
    char place[4], *end = place;

    if (i == CN_V2_CUTS_MAX)
        return false;
    cuts->at[cuts->n++] = (struct cn_str){from, (size_t)(to - from)};
    cuts->found++;
    *end++ = '[';
    if (i >= 10)
        *end++ = (char)('0' + i / 10);
    *end++ = (char)('0' + i % 10);
    *end++ = ']';
    return keep(cuts, place, end);
}

static bool
cut_field_out(struct cn_v2_cuts *cuts, enum cn_v2_field field, const char *from, const char *to)
{
    const struct cn_str place = *from == '"' ? CN_STR("\"\"") : CN_STR("0");

    if (cuts->fields[field].ptr)
        return false;
    cuts->fields[field] = (struct cn_str){from, (size_t)(to - from)};
    cuts->found++;
    return keep(cuts, place.ptr, place.ptr + place.len);
}

/* Handles a string: if it is the key of an array or a field, cuts the value out and moves *at
 * behind it. *kept is how far the head goes. Returns false when the request must be read as one
 * document. */
static bool
cut_behind(struct cn_v2_cuts *cuts, struct cn_str key, int depth, const char **at,
           const char *const end, const char **kept)
{
    const bool is_data = depth == DATA_DEPTH && cn_str_eq(key, CN_STR("data"));
    const enum cn_v2_field field = is_data ? CN_V2_N_FIELDS : field_of(key, depth);
    const char *begin, *to;

    if (!is_data && field == CN_V2_N_FIELDS)
        return true;
    begin = value_behind(key.ptr + key.len, end);
    if (!begin || (is_data && *begin != '['))
        return true;
    to = is_data ? array_end(begin, end) : field_end(begin, end, field);
    if (!to || !keep(cuts, *kept, begin) ||
        !(is_data ? cut_out(cuts, begin, to) : cut_field_out(cuts, field, begin, to)))
        return false;
    *at = *kept = to;
    return true;
}

bool
cn_v2_cut(struct cn_str text, struct cn_v2_cuts *out)
{
    const char *at = text.ptr, *const end = at + text.len, *kept = at, *close;
    struct cn_str key;
    int depth = 0;

    out->n = out->found = out->taken = 0;
    out->head_len = 0;
    memset(out->fields, 0, sizeof(out->fields));
    if (!cn_tuned(CN_TUNING_JSON_CUTS))
        return false;
    while (at < end) {
        switch (*at++) {
        case '[':
        case '{':
            depth++;
            break;
        case ']':
        case '}':
            depth--;
            break;
        case '"':
            if (!(close = string_end(at, end)))
                return false;
            key = (struct cn_str){at, (size_t)(close - at)};
            at = close + 1;
            if (!cut_behind(out, key, depth, &at, end, &kept))
                return false;
            break;
        default:
            break;
        }
    }
    return out->found > 0 && keep(out, kept, end);
}

bool
cn_v2_cut_field(struct cn_v2_cuts *cuts, enum cn_v2_field field, struct cn_str *out, bool *is_text)
{
    *out = cuts->fields[field];
    if (!out->ptr)
        return false;
    *is_text = *out->ptr == '"';
    if (*is_text)
        *out = (struct cn_str){out->ptr + 1, out->len - 2};
    cuts->taken++;
    return true;
}

uint64_t
cn_v2_cut_number(struct cn_str digits)
{
    uint64_t value = 0;

    for (size_t i = 0; i < digits.len; i++)
        value = value * 10 + (unsigned)(digits.ptr[i] - '0');
    return value;
}

/* --- converting the numbers */

/* A number's text, split into its parts. */
struct number {
    const char *text;
    size_t len;
    uint64_t digits; /* the first digits, without the decimal point */
    int scale;       /* the exponent of ten */
    bool negative, real;
    bool cut; /* there are more digits than `digits` can hold */
};

/* Reads digits; returns the position after them, or NULL if there is none. */
static const char *
take_digits(const char *at, struct number *number)
{
    const char *const from = at;

    for (; *at >= '0' && *at <= '9'; at++) {
        if (number->digits < UINT64_C(100000000000000000)) /* one more digit fits */
            number->digits = number->digits * 10 + (unsigned)(*at - '0');
        else
            number->cut = true;
    }
    return at > from ? at : NULL;
}

static const char *
take_exponent(const char *at, struct number *number)
{
    const bool negative = *at == '-';
    const char *from;
    int value = 0;

    if (*at == '-' || *at == '+')
        at++;
    for (from = at; *at >= '0' && *at <= '9' && at - from < 5; at++)
        value = value * 10 + (*at - '0');
    number->scale += negative ? -value : value;
    return at > from && at - from < 5 ? at : NULL;
}

/* Reads a number by JSON's grammar. Returns the position after it, or NULL. */
static const char *
take_number(const char *at, struct number *out)
{
    *out = (struct number){.text = at, .negative = *at == '-'};
    at += out->negative;
    if (*at == '0')
        at++;
    else if (!(at = take_digits(at, out)))
        return NULL;
    if (*at == '.') {
        const char *const point = ++at;

        if (!(at = take_digits(at, out)))
            return NULL;
        out->scale = -(int)(at - point < NUMBER_MAX ? at - point : NUMBER_MAX);
        out->real = true;
    }
    if (*at == 'e' || *at == 'E') {
        if (!(at = take_exponent(at + 1, out)))
            return NULL;
        out->real = true;
    }
    out->len = (size_t)(at - out->text);
    return at;
}

/* Converts to the nearest double: with one exact operation where possible, else with strtod. */
static bool
as_double(const struct number *number, double *out)
{
    static const double tens[EXACT_MAX + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                               1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                               1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    char text[NUMBER_MAX + 1];

    if (number->cut || number->digits > WHOLE_MAX || abs(number->scale) > EXACT_MAX) {
        if (number->len > NUMBER_MAX)
            return false;
        memcpy(text, number->text, number->len);
        text[number->len] = '\0';
        *out = strtod(text, NULL);
        return isfinite(*out);
    }
    *out = (double)number->digits;
    if (number->scale < 0)
        *out /= tens[-number->scale];
    else
        *out *= tens[number->scale];
    if (number->negative && (number->real || number->digits)) /* -0 is the integer 0 */
        *out = -*out;
    return true;
}

/* Writes the number as an element of `type`, by the rules of json_values.c: integers wrap in narrow
 * types, and a number with a fraction is not an integer. Returns the element's bytes; 0: the number
 * is of another kind. */
static unsigned
put_number(const struct number *number, enum cn_datatype type, char *to)
{
    const unsigned bytes = cn_datatype_bytes(type);
    uint64_t whole = number->negative ? 0 - number->digits : number->digits;
    double wide;
    float narrow;

    if (!number->real && (number->cut || number->len > DIGITS_MAX))
        return 0;
    switch (type) {
    case CN_DATATYPE_UINT8:
    case CN_DATATYPE_UINT16:
    case CN_DATATYPE_UINT32:
    case CN_DATATYPE_UINT64:
        if (number->real || (number->negative && whole))
            return 0;
        memcpy(to, &whole, bytes); /* the low bytes: this machine is little-endian */
        return bytes;
    case CN_DATATYPE_INT8:
    case CN_DATATYPE_INT16:
    case CN_DATATYPE_INT32:
    case CN_DATATYPE_INT64:
        if (number->real)
            return 0;
        memcpy(to, &whole, bytes);
        return bytes;
    case CN_DATATYPE_FP32:
        if (!as_double(number, &wide))
            return 0;
        narrow = (float)wide;
        memcpy(to, &narrow, sizeof(narrow));
        return bytes;
    case CN_DATATYPE_FP64:
        if (!as_double(number, &wide))
            return 0;
        memcpy(to, &wide, sizeof(wide));
        return bytes;
    default:
        return 0;
    }
}

static const char *
skip_blanks(const char *at)
{
    while (is_blank(*at))
        at++;
    return at;
}

bool
cn_v2_numbers(struct cn_str array, enum cn_datatype type, uint64_t n, char *to)
{
    const char *at = array.ptr, *const end = at + array.len;
    struct number number;
    unsigned bytes;
    int depth = 0;

    for (;;) {
        if (*at == '[') {
            depth++;
            at = skip_blanks(at + 1);
            if (*at != ']')
                continue; /* the first value of the array comes next */
        } else {
            if (n == 0 || !(at = take_number(at, &number)) ||
                !(bytes = put_number(&number, type, to)))
                return false;
            to += bytes;
            n--;
        }
        for (at = skip_blanks(at); *at == ']'; at = skip_blanks(at))
            if (at++, --depth == 0)
                return at == end && n == 0;
        if (*at != ',')
            return false;
        at = skip_blanks(at + 1);
    }
}

bool
cn_v2_cut_number_of(const struct cn_v2_cuts *cuts, const json_t *data, uint32_t *number)
{
    const json_int_t i = json_integer_value(json_array_get(data, 0));

    if (!json_is_array(data) || json_array_size(data) != 1 || i < 0 || i >= cuts->n)
        return false;
    *number = (uint32_t)i;
    return true;
}

bool
cn_v2_cut_values(struct cn_v2_cuts *cuts, uint32_t number, size_t max_bytes, struct cn_arena *arena,
                 struct cn_tensor *tensor)
{
    uint64_t n, bytes;
    char *room;

    if (number >= cuts->n || !cn_shape_elements(tensor->shape, tensor->rank, &n) || n == 0 ||
        tensor->rank == 0 || __builtin_mul_overflow(n, cn_datatype_bytes(tensor->type), &bytes) ||
        bytes == 0 || bytes > max_bytes || n > cuts->at[number].len)
        return false;
    room = cn_arena_try_alloc(arena, (size_t)bytes);
    if (!room || !cn_v2_numbers(cuts->at[number], tensor->type, n, room))
        return false;
    tensor->data = (struct cn_str){room, (size_t)bytes};
    cuts->taken++;
    return true;
}
