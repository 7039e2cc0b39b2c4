/* archiver/torch/torch_script.c - reads the signature of `forward` in TorchScript's code, which
 * looks like Python. Archiver only.
 *
 *   class Weather(Module):
 *     def forward(self: __torch__.weather.Weather,
 *       day: Tensor,
 *       h: Tensor, scale: float=1.) -> Tuple[Tensor, Tensor]:
 *       ...
 *       return (torch.select(guess, 0, 0), h0)
 *
 * A variable that the code sets anew gets a number behind its name: h0 is a later h. So the names
 * of results tell which arguments they replace. */
#include <stdio.h>
#include <string.h>

#include "archiver/torch/torch_parse.h"

#define NESTED_MAX 16 /* tuples in tuples */

static bool
is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static struct cn_str
trimmed(struct cn_str text)
{
    while (text.len > 0 && is_space(text.ptr[0]))
        text.ptr++, text.len--;
    while (text.len > 0 && is_space(text.ptr[text.len - 1]))
        text.len--;
    return text;
}

/* Returns where this character stands first, outside of brackets and quotes, or the length. */
static size_t
outside(struct cn_str text, char wanted)
{
    size_t depth = 0;
    char quote = '\0';

    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];

        if (quote) {
            if (c == '\\')
                i++;
            else if (c == quote)
                quote = '\0';
        } else if (depth == 0 && c == wanted) {
            return i;
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '(' || c == '[' || c == '{') {
            depth++;
        } else if ((c == ')' || c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return text.len;
}

/* Cuts off what is before the next comma that is not in brackets. */
static struct cn_str
next_item(struct cn_str *rest)
{
    size_t n = outside(*rest, ',');
    struct cn_str item = {rest->ptr, n};

    n = n < rest->len ? n + 1 : n;
    *rest = (struct cn_str){rest->ptr + n, rest->len - n};
    return trimmed(item);
}

/* Returns whether the text is `begin`, a list, and the closing bracket of `begin`'s last character;
 * `inside` gets the list. */
static bool
enclosed(struct cn_str text, struct cn_str begin, char close, struct cn_str *inside)
{
    if (!cn_str_begins(text, begin))
        return false;
    *inside = (struct cn_str){text.ptr + begin.len, text.len - begin.len};
    if (inside->len == 0 || outside(*inside, close) != inside->len - 1)
        return false;
    inside->len--;
    return true;
}

static enum cn_torch_value_kind
kind_of(struct cn_str type)
{
    if (cn_str_eq(type, CN_STR("Tensor")) || cn_str_eq(type, CN_STR("Optional[Tensor]")))
        return CN_TORCH_TENSOR;
    if (cn_str_eq(type, CN_STR("int")) || cn_str_eq(type, CN_STR("float")) ||
        cn_str_eq(type, CN_STR("bool")))
        return CN_TORCH_NUMBER;
    return CN_TORCH_OTHER;
}

static const char too_many[] = "its method has more than 256 arguments or results, or tuples in "
                               "more than 16 tuples";

/* Adds the values of a type; a tuple is taken apart. */
static const char *
add_type(struct cn_str type, unsigned depth, struct cn_torch_value *values, uint32_t *n)
{
    struct cn_torch_value *value;
    struct cn_str items;
    const char *wrong;

    type = trimmed(type);
    if (depth < NESTED_MAX && enclosed(type, CN_STR("Tuple["), ']', &items)) {
        while (items.len > 0)
            if ((wrong = add_type(next_item(&items), depth + 1, values, n)) != NULL)
                return wrong;
        return NULL;
    }
    value = cn_torch_value_add(values, n);
    if (!value || depth == NESTED_MAX)
        return too_many;
    value->kind = kind_of(type);
    value->text = type;
    return NULL;
}

/* Names the values from `first` on. Those of a tuple get numbers. */
static const char *
set_names(struct cn_str name, uint32_t first, struct cn_arena *arena, struct cn_torch_file *out)
{
    if (first + 1 == out->n_arguments) {
        out->arguments[first].name = name;
        return NULL;
    }
    for (uint32_t i = first; i < out->n_arguments; i++) {
        const size_t size = name.len + 16;
        char *text = cn_arena_try_alloc(arena, size);

        if (!text)
            return "out of memory";
        snprintf(text, size, "%.*s_%u", CN_STR_ARG(name), i - first);
        out->arguments[i].name = cn_str_from(text);
    }
    return NULL;
}

/* One of: day: Tensor, flag: bool=False, self: __torch__.weather.Weather. */
static const char *
add_argument(struct cn_str item, struct cn_arena *arena, struct cn_torch_file *out)
{
    size_t colon = outside(item, ':');
    struct cn_str name = trimmed((struct cn_str){item.ptr, colon}), type, value = {0};
    const uint32_t first = out->n_arguments;
    const char *wrong;
    size_t equals;

    if (colon == item.len || name.len == 0)
        return "the signature of its method forward cannot be read";
    type = trimmed((struct cn_str){item.ptr + colon + 1, item.len - colon - 1});
    equals = outside(type, '=');
    if (equals < type.len)
        value = trimmed((struct cn_str){type.ptr + equals + 1, type.len - equals - 1});
    type = trimmed((struct cn_str){type.ptr, equals});
    if ((wrong = add_type(type, 0, out->arguments, &out->n_arguments)) != NULL)
        return wrong;
    if (out->n_arguments == first + 1 && out->arguments[first].kind == CN_TORCH_NUMBER &&
        value.len > 0)
        out->arguments[first].text = value;
    return set_names(name, first, arena, out);
}

static bool
is_name(struct cn_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];

        if (c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') &&
            (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return text.len > 0;
}

/* Gives results the names of the variables that are returned. Returns how many results the
 * expression has. */
static uint32_t
name_results(struct cn_str expression, unsigned depth, uint32_t first, struct cn_torch_file *out)
{
    struct cn_str items;
    uint32_t n = 0;

    expression = trimmed(expression);
    if (depth < NESTED_MAX && enclosed(expression, CN_STR("("), ')', &items)) {
        while (items.len > 0)
            n += name_results(next_item(&items), depth + 1, first + n, out);
        return n;
    }
    if (first < out->n_results && is_name(expression))
        out->results[first].name = expression;
    return 1;
}

/* Lets `rest` begin behind the text. Returns false if the text is not in it. */
static bool
skip_past(struct cn_str *rest, const char *text)
{
    const char *at = rest->len > 0 ? memmem(rest->ptr, rest->len, text, strlen(text)) : NULL;

    if (!at)
        return false;
    at += strlen(text);
    *rest = (struct cn_str){at, rest->len - (size_t)(at - rest->ptr)};
    return true;
}

/* The names of the last return of the method's body, if it returns as many values as its type
 * says. */
static void
read_return(struct cn_str body, struct cn_torch_file *out)
{
    const char *end = body.len > 0 ? memmem(body.ptr, body.len, "\n  def ", 7) : NULL;
    struct cn_str last = {0};

    if (end)
        body.len = (size_t)(end - body.ptr);
    while (skip_past(&body, "\n    return "))
        last = body;
    last.len = outside(last, '\n');
    if (name_results(last, 0, 0, out) != out->n_results)
        for (uint32_t i = 0; i < out->n_results; i++)
            out->results[i].name = (struct cn_str){0};
}

const char *
cn_torch_script_parse(struct cn_str code, struct cn_str class_name, struct cn_arena *arena,
                      struct cn_torch_file *out)
{
    const char *wrong, *end;
    struct cn_str items;
    size_t n;
    bool self = true;

    do {
        if (!skip_past(&code, "class "))
            return "its code has no class of the name that data.pkl says";
    } while (!cn_str_begins(code, class_name) || code.len <= class_name.len ||
             code.ptr[class_name.len] != '(');
    end = memmem(code.ptr, code.len, "\nclass ", 7);
    if (end)
        code.len = (size_t)(end - code.ptr);
    if (!skip_past(&code, "  def forward("))
        return "its module has no method forward; docs/torch.md says how another one is named";
    n = outside(code, ')');
    items = (struct cn_str){code.ptr, n};
    if (n == code.len)
        return "the signature of its method forward cannot be read";
    for (; items.len > 0; self = false) {
        struct cn_str item = next_item(&items);

        if (!self && item.len > 0 && (wrong = add_argument(item, arena, out)) != NULL)
            return wrong;
    }
    code = (struct cn_str){code.ptr + n, code.len - n};
    if (!cn_str_begins(code, CN_STR(") -> ")))
        return "the signature of its method forward cannot be read";
    code = (struct cn_str){code.ptr + 5, code.len - 5};
    n = outside(code, ':');
    if ((wrong = add_type((struct cn_str){code.ptr, n}, 0, out->results, &out->n_results)) != NULL)
        return wrong;
    read_return((struct cn_str){code.ptr + n, code.len - n}, out);
    return NULL;
}
