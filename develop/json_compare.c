/* develop/json_compare.c - see develop/json_compare.h. Any thread.
 *
 * 1 and 1.0 are equal, and 0.1 + 0.2 equals 0.3: handlers in different languages write the same
 * number differently, and models on different machines round differently. Everything else must be
 * the same: the members of an object, the length of a list, texts. A number in the text "5" is a
 * text. */
#include "develop/json_compare.h"

#include <math.h>

#define TOLERANCE 1e-6

json_t *
cn_json_of_yaml(const struct cn_yaml *value)
{
    json_t *out;

    switch (value->kind) {
    case CN_YAML_BOOL:
        return json_boolean(value->boolean);
    case CN_YAML_INT:
        return json_integer(value->integer);
    case CN_YAML_FLOAT:
        return isfinite(value->number) ? json_real(value->number) : json_null();
    case CN_YAML_STRING:
        return json_stringn(value->text.ptr ? value->text.ptr : "", value->text.len);
    case CN_YAML_LIST:
        out = json_array();
        for (uint32_t i = 0; i < value->n_items; i++)
            json_array_append_new(out, cn_json_of_yaml(value->items[i]));
        return out;
    case CN_YAML_MAP:
        out = json_object();
        for (uint32_t i = 0; i < value->n_items; i++)
            json_object_setn_new(out, value->items[i]->key.ptr, value->items[i]->key.len,
                                 cn_json_of_yaml(value->items[i]));
        return out;
    case CN_YAML_NULL:
        break;
    }
    return json_null();
}

static bool
numbers_match(double a, double b)
{
    double larger = fmax(fabs(a), fabs(b));

    return a == b || fabs(a - b) <= TOLERANCE * larger;
}

bool
cn_json_matches(const json_t *expected, const json_t *got)
{
    const json_t *value;
    const char *key;
    size_t i;

    if (!got)
        return false;
    if (json_is_number(expected) && json_is_number(got))
        return numbers_match(json_number_value(expected), json_number_value(got));
    if (json_typeof(expected) != json_typeof(got))
        return false;
    if (json_is_array(expected)) {
        if (json_array_size(expected) != json_array_size(got))
            return false;
        json_array_foreach(expected, i,
                           value) if (!cn_json_matches(value, json_array_get(got, i))) return false;
        return true;
    }
    if (json_is_object(expected)) {
        if (json_object_size(expected) != json_object_size(got))
            return false;
        json_object_foreach(
            (json_t *)(uintptr_t)expected, key,
            value) if (!cn_json_matches(value, json_object_get(got, key))) return false;
        return true;
    }
    return json_equal(expected, got);
}
