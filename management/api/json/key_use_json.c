/* management/api/json/key_use_json.c - what the named keys use, as JSON. Loop 0. */
#include "management/api/json/key_use_json.h"

#include <stdlib.h>
#include <string.h>

#include "access/key_limits.h"
#include "core/memory/mem.h"
#include "management/api/json/json_text.h"

static void
put_number(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

static json_t *
show(const struct cn_account_use *use)
{
    json_t *out = json_object(), *refused = json_object(), *limits = json_object();

    json_object_set_new(out, "name", cn_json_text(use->name));
    put_number(out, "requests", use->requests);
    put_number(out, "inFlight", use->in_flight);
    put_number(out, "sequences", use->sequences);
    put_number(out, "storedBytes", use->stored_bytes);
    for (int i = 0; i < CN_N_ACCOUNT_LIMITS; i++)
        put_number(refused, cn_account_limit_word((enum cn_account_limit)i), use->refused[i]);
    json_object_set_new(out, "refused", refused);
    for (unsigned i = 0; i < CN_N_KEY_LIMITS; i++)
        if (cn_key_limit_get(&use->limits, i))
            put_number(limits, cn_key_limit_name(i), cn_key_limit_get(&use->limits, i));
    json_object_set_new(out, "limits", limits);
    return out;
}

static void
add(void *ctx, const struct cn_account_use *use)
{
    json_array_append_new(ctx, show(use));
}

static const char *
name_of(const json_t *key)
{
    return json_string_value(json_object_get(key, "name"));
}

static int
by_name(const void *a, const void *b)
{
    return strcmp(name_of(*(json_t *const *)a), name_of(*(json_t *const *)b));
}

/* Sorts the array, and takes it. */
static json_t *
sorted(json_t *array)
{
    const size_t n = json_array_size(array);
    json_t **items = cn_alloc((n + 1) * sizeof *items), *out = json_array();

    for (size_t i = 0; i < n; i++)
        items[i] = json_array_get(array, i);
    qsort(items, n, sizeof *items, by_name);
    for (size_t i = 0; i < n; i++)
        json_array_append(out, items[i]);
    cn_free(items);
    json_decref(array);
    return out;
}

json_t *
cn_key_use_json(struct cn_accounts *accounts)
{
    json_t *keys = json_array(), *out = json_object();

    if (accounts)
        cn_accounts_each(accounts, add, keys);
    json_object_set_new(out, "keys", sorted(keys));
    return out;
}
