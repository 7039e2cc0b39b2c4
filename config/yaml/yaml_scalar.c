/* config/yaml/yaml_scalar.c - what an unquoted scalar means, by the core schema of YAML 1.2
 * (section 10.3.2). Any thread.
 *
 * YAML 1.1 reads more words as other things: yes, no, on and off as booleans, 1_000 as a number,
 * 012 as octal. Here they are strings (012 is 12), and an option that expects a boolean or a number
 * refuses them with a message, which is better than a surprise. */
#include "config/yaml/yaml_scalar.h"

#include <errno.h>
#include <stdlib.h>

static bool
is_one_of(struct cn_str text, const char *const words[3])
{
    for (int i = 0; i < 3; i++) {
        if (cn_str_eq(text, cn_str_from(words[i])))
            return true;
    }
    return false;
}

static size_t
skip_digits(struct cn_str text, size_t at)
{
    while (at < text.len && text.ptr[at] >= '0' && text.ptr[at] <= '9')
        at++;
    return at;
}

static size_t
skip_sign(struct cn_str text)
{
    return text.len > 0 && (text.ptr[0] == '-' || text.ptr[0] == '+');
}

/* The base of an integer as it is written; 0 if it is not one. */
static int
integer_base(struct cn_str text)
{
    size_t start = skip_sign(text);
    int base = 10;

    if (text.len > 2 && text.ptr[0] == '0' && (text.ptr[1] == 'x' || text.ptr[1] == 'o')) {
        base = text.ptr[1] == 'x' ? 16 : 8;
        for (size_t i = 2; i < text.len; i++) {
            char c = text.ptr[i];
            bool digit = c >= '0' && c <= (base == 8 ? '7' : '9');
            if (!digit && !(base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))))
                return 0;
        }
        return base;
    }
    return start < text.len && skip_digits(text, start) == text.len ? base : 0;
}

/* [-+]? ( . digits | digits ( . digits? )? ) ( [eE] [-+]? digits )? */
static bool
looks_like_float(struct cn_str text)
{
    size_t start = skip_sign(text), at = skip_digits(text, start), digits = at - start;

    if (at < text.len && text.ptr[at] == '.') {
        size_t end = skip_digits(text, at + 1);
        digits += end - at - 1;
        at = end;
    }
    if (digits == 0)
        return false;
    if (at < text.len && (text.ptr[at] == 'e' || text.ptr[at] == 'E')) {
        at++;
        if (at < text.len && (text.ptr[at] == '-' || text.ptr[at] == '+'))
            at++;
        start = at;
        at = skip_digits(text, at);
        if (at == start)
            return false;
    }
    return at == text.len;
}

/* The order matters only for words; a text that is none of these is a string. */
void
cn_yaml_resolve(struct cn_yaml *node)
{
    static const char *const nulls[] = {"null", "Null", "NULL"};
    static const char *const trues[] = {"true", "True", "TRUE"};
    static const char *const falses[] = {"false", "False", "FALSE"};
    static const char *const infinities[] = {".inf", ".Inf", ".INF"};
    static const char *const nans[] = {".nan", ".NaN", ".NAN"};
    struct cn_str text = node->text, unsigned_text = text;
    int base;

    node->kind = CN_YAML_STRING;
    if (skip_sign(text))
        unsigned_text = (struct cn_str){text.ptr + 1, text.len - 1};
    if (text.len == 0 || cn_str_eq(text, CN_STR("~")) || is_one_of(text, nulls)) {
        node->kind = CN_YAML_NULL;
    } else if (is_one_of(text, trues) || is_one_of(text, falses)) {
        node->kind = CN_YAML_BOOL;
        node->boolean = is_one_of(text, trues);
    } else if ((base = integer_base(text)) != 0) {
        errno = 0;
        node->integer = strtoll(text.ptr + (base == 10 ? 0 : 2), NULL, base);
        /* An integer that int64 cannot hold is still a number. Options then refuse it and show its
         * text. */
        node->kind = errno == 0 ? CN_YAML_INT : CN_YAML_FLOAT;
        node->number = errno == 0 ? (double)node->integer : strtod(text.ptr, NULL);
    } else if (looks_like_float(text)) {
        node->kind = CN_YAML_FLOAT;
        node->number = strtod(text.ptr, NULL);
    } else if (is_one_of(unsigned_text, infinities)) {
        node->kind = CN_YAML_FLOAT;
        node->number = text.ptr[0] == '-' ? -__builtin_inf() : __builtin_inf();
    } else if (is_one_of(text, nans)) {
        node->kind = CN_YAML_FLOAT;
        node->number = __builtin_nan("");
    }
}

bool
cn_yaml_take_integer(const struct cn_yaml *node, int64_t *out)
{
    struct cn_yaml plain = *node;

    if (plain.kind == CN_YAML_STRING)
        cn_yaml_resolve(&plain);
    *out = plain.integer;
    return plain.kind == CN_YAML_INT;
}
