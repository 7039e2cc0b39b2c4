/* kserve/json/json_fields.c - reads single fields of an inference request's JSON, with the
 * protocol's errors for a field that is missing or of a wrong type. Any thread. */
#include "kserve/json/json_read_priv.h"
#include "kserve/json/json_words.h"

int
cn_v2_field_unable(const struct reader *reader, const char *key, const char *got,
                   const char *wanted)
{
    return cn_fail(reader->err, CN_E_INTERNAL,
                   "Unable to parse '%s': attempt to access JSON non-%s as %s", key, got, wanted);
}

int
cn_v2_field_missing(const struct reader *reader, const char *key)
{
    return cn_fail(reader->err, CN_E_INTERNAL,
                   "Unable to parse '%s': attempt to access non-existing object member '%s'", key,
                   key);
}

struct cn_str
cn_v2_field_text(const struct reader *reader, const json_t *value)
{
    return cn_arena_str(reader->arena, cn_v2_json_text(value));
}

int
cn_v2_field_string(const struct reader *reader, const json_t *map, const char *key, bool required,
                   struct cn_str *out)
{
    const json_t *value;

    if (!(value = cn_v2_json_get(map, key)))
        return required ? cn_v2_field_missing(reader, key) : 0;
    if (!cn_v2_json_is_string(value))
        return cn_v2_field_unable(reader, key, "string", "string");
    *out = cn_v2_field_text(reader, value);
    return 0;
}

int
cn_v2_field_bool(const struct reader *reader, const char *key, const json_t *value, bool *out)
{
    if (!json_is_boolean(value))
        return cn_v2_field_unable(reader, key, "boolean", "boolean");
    *out = json_is_true(value);
    return 0;
}

int
cn_v2_field_uint(const struct reader *reader, const char *key, const json_t *value, uint64_t *out)
{
    if (!cn_v2_json_uint(value, out))
        return cn_v2_field_unable(reader, key, "unsigned-integer", "unsigned-integer");
    return 0;
}
