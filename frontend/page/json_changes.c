/* frontend/page/json_changes.c - compares two JSON objects, member by member. */
#include "frontend/page/json_changes.h"

#include <stdint.h>

json_t *
cn_changes(const json_t *before, json_t *now)
{
    json_t *out = json_object(), *value;
    const char *key;

    json_object_foreach(now, key, value)
    {
        if (!json_equal(json_object_get(before, key), value))
            json_object_set(out, key, value);
    }
    json_object_foreach((json_t *)(uintptr_t)before, key, value)
    {
        if (!json_object_get(now, key))
            json_object_set_new(out, key, json_null());
    }
    if (json_object_size(out) > 0)
        return out;
    json_decref(out);
    return NULL;
}
