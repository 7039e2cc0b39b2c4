/* kserve/trace_settings.c - which requests are traced. Any thread, one lock.
 *
 * A trace is a line in the server's log. There are settings for all models, and a model may have
 * its own. A setting that a model does not have comes from those for all, and one that is missing
 * there has a default (value_of). trace_rate N picks one request in N, trace_count limits how many
 * are picked after the last change.
 *
 * `state.on` says whether any model is traced, so that a request on a server without traces costs
 * one relaxed load and no lock.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory/mem.h"
#include "kserve/infer_answer.h"
#include "kserve/json/json_words.h"
#include "kserve/settings.h"

#define SCOPES_MAX 1000 /* most models with settings of their own */
#define VALUES_MAX 16   /* most values of one setting */

/* The settings of one model, or those of all. */
struct scope {
    char *model; /* NULL: the settings for all models */
    bool set[CN_TRACE_N_KEYS];
    int64_t values[CN_TRACE_N_KEYS];
    uint64_t seen, traced;
};

static const char *const words[CN_TRACE_N_KEYS] = {"trace_level",   "trace_rate", "trace_count",
                                                   "log_frequency", "trace_file", "trace_mode"};
static const int64_t defaults[CN_TRACE_N_KEYS] = {
    [CN_TRACE_RATE] = 1000,
    [CN_TRACE_COUNT] = -1,
};

static struct {
    pthread_mutex_t lock;
    struct scope all, *models;
    uint32_t n_models;
    atomic_bool on; /* some scope has a level */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *
cn_trace_key_word(enum cn_trace_key key)
{
    return words[key];
}

int
cn_trace_key_parse(struct cn_str word)
{
    for (int i = 0; i < CN_TRACE_N_KEYS; i++)
        if (cn_str_eq(word, cn_str_from(words[i])))
            return i;
    return -1;
}

/* --- one setting's words */

static int
bad_value(enum cn_trace_key key, struct cn_str value, const char *must, struct cn_error *err)
{
    return cn_fail(err, CN_E_BAD_REQUEST, "%s is '%.*s'; it must be %s", words[key],
                   (int)(value.len < 100 ? value.len : 100), value.ptr ? value.ptr : "", must);
}

/* Reads trace_level: a list of OFF and TIMESTAMPS. */
static int
parse_level(const struct cn_str *values, uint32_t n, int64_t *out, struct cn_error *err)
{
    *out = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (cn_str_eq(values[i], CN_STR("TIMESTAMPS")))
            *out = 1;
        else if (!cn_str_eq(values[i], CN_STR("OFF")))
            return bad_value(CN_TRACE_LEVEL, values[i],
                             "OFF or TIMESTAMPS (tensors are not traced here)", err);
    }
    return 0;
}

static int
parse_number(enum cn_trace_key key, struct cn_str value, int64_t min, int64_t max, int64_t *out,
             struct cn_error *err)
{
    char text[32] = "", *end;

    if (value.len > 0 && value.len < sizeof(text))
        memcpy(text, value.ptr, value.len);
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (end == text || *end || strlen(text) != value.len || errno || *out < min || *out > max)
        return bad_value(key, value,
                         key == CN_TRACE_RATE
                             ? "a number from 1 upwards: one of this many requests is traced"
                         : key == CN_TRACE_COUNT ? "a number, or -1 for no limit"
                                                 : "0, because no trace files are written",
                         err);
    return 0;
}

int
cn_trace_set(struct cn_trace_change *change, enum cn_trace_key key, const struct cn_str *values,
             uint32_t n, struct cn_error *err)
{
    const struct cn_str value = values && n ? values[0] : CN_STR("");
    int64_t *out = &change->keys[key].value;
    int rc = 0;

    if (key == CN_TRACE_FILE)
        return cn_fail(err, CN_E_UNIMPLEMENTED,
                       "trace file location can not be updated through network protocol: "
                       "traces are lines of the server's log");
    if (values && n != 1 && key != CN_TRACE_LEVEL)
        return cn_fail(err, CN_E_BAD_REQUEST, "%s takes one value, not %u", words[key], n);
    if (!values)
        change->keys[key].clear = true;
    else if (key == CN_TRACE_LEVEL)
        rc = parse_level(values, n, out, err);
    else if (key == CN_TRACE_RATE)
        rc = parse_number(key, value, 1, INT64_MAX, out, err);
    else if (key == CN_TRACE_COUNT)
        rc = parse_number(key, value, -1, INT64_MAX, out, err);
    else if (key == CN_TRACE_LOG_FREQUENCY)
        rc = parse_number(key, value, 0, 0, out, err);
    else if (!cn_str_eq(value, CN_STR("triton")))
        rc = bad_value(key, value, "triton, because OpenTelemetry is not supported", err);
    change->keys[key].set = values && rc == 0;
    return rc;
}

/* --- scopes; under the lock */

static struct scope *
find(struct cn_str model)
{
    for (uint32_t i = 0; i < state.n_models; i++)
        if (cn_str_eq(model, cn_str_from(state.models[i].model)))
            return &state.models[i];
    return NULL;
}

/* The setting in force: the model's own, else the one for all, else the default. */
static int64_t
value_of(const struct scope *scope, enum cn_trace_key key)
{
    if (scope && scope->set[key])
        return scope->values[key];
    return state.all.set[key] ? state.all.values[key] : defaults[key];
}

/* Is anything traced? Computed after each change. */
static bool
is_on(void)
{
    for (uint32_t i = 0; i < state.n_models; i++)
        if (value_of(&state.models[i], CN_TRACE_LEVEL))
            return true;
    return value_of(NULL, CN_TRACE_LEVEL) != 0;
}

/* Finds a model's settings, or makes them; NULL when SCOPES_MAX models have settings. */
static struct scope *
find_or_add(struct cn_str model)
{
    struct scope *scope = model.len ? find(model) : &state.all;

    if (scope || state.n_models == SCOPES_MAX)
        return scope;
    if (!state.models)
        state.models = cn_alloc(SCOPES_MAX * sizeof(*state.models));
    scope = &state.models[state.n_models++];
    scope->model = cn_strndup(model.ptr, model.len);
    return scope;
}

int
cn_trace_apply(struct cn_str model, const struct cn_trace_change *change, struct cn_error *err)
{
    struct scope *scope;

    pthread_mutex_lock(&state.lock);
    scope = find_or_add(model);
    for (unsigned i = 0; scope && i < CN_TRACE_N_KEYS; i++) {
        if (change->keys[i].set)
            scope->values[i] = change->keys[i].value;
        if (change->keys[i].set || change->keys[i].clear)
            scope->set[i] = change->keys[i].set;
    }
    if (scope)
        scope->seen = scope->traced = 0;
    atomic_store_explicit(&state.on, is_on(), memory_order_relaxed);
    pthread_mutex_unlock(&state.lock);
    if (!scope)
        return cn_fail(err, CN_E_UNAVAILABLE,
                       "%d models already have trace settings, which is the limit", SCOPES_MAX);
    return 0;
}

void
cn_trace_read(struct cn_str model, struct cn_arena *arena, struct cn_str values[CN_TRACE_N_KEYS])
{
    const struct scope *scope;

    pthread_mutex_lock(&state.lock);
    scope = model.len ? find(model) : NULL;
    values[CN_TRACE_LEVEL] = value_of(scope, CN_TRACE_LEVEL) ? CN_STR("TIMESTAMPS") : CN_STR("OFF");
    values[CN_TRACE_RATE] =
        cn_str_from(cn_arena_printf(arena, "%" PRId64, value_of(scope, CN_TRACE_RATE)));
    values[CN_TRACE_COUNT] =
        cn_str_from(cn_arena_printf(arena, "%" PRId64, value_of(scope, CN_TRACE_COUNT)));
    values[CN_TRACE_LOG_FREQUENCY] = CN_STR("0");
    values[CN_TRACE_FILE] = CN_STR("");
    values[CN_TRACE_MODE] = CN_STR("triton");
    pthread_mutex_unlock(&state.lock);
}

bool
cn_trace_pick(struct cn_str model)
{
    struct scope *scope;
    int64_t count;
    bool pick;

    if (!atomic_load_explicit(&state.on, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&state.lock);
    scope = find(model);
    count = value_of(scope, CN_TRACE_COUNT);
    pick = value_of(scope, CN_TRACE_LEVEL);
    if (pick) {
        uint64_t rate = (uint64_t)value_of(scope, CN_TRACE_RATE);

        scope = scope ? scope : &state.all;
        pick = scope->seen++ % rate == 0 && (count < 0 || scope->traced < (uint64_t)count);
        scope->traced += pick;
    }
    pthread_mutex_unlock(&state.lock);
    return pick;
}

/* --- JSON */

/* Reads one member of the JSON document: null clears the setting; a number, a text, or a list of
 * texts sets it. */
static int
take(struct cn_trace_change *change, const char *key, const json_t *value, struct cn_error *err)
{
    struct cn_str list[VALUES_MAX];
    int which = cn_trace_key_parse(cn_str_from(key));
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    char number[32];

    if (which < 0)
        return cn_fail(err, CN_E_BAD_REQUEST, "unknown trace setting '%.100s'", key);
    if (json_is_null(value))
        return cn_trace_set(change, (enum cn_trace_key)which, NULL, 0, err);
    if (json_is_integer(value)) {
        snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        list[0] = cn_str_from(number);
        return cn_trace_set(change, (enum cn_trace_key)which, list, 1, err);
    }
    if (n > VALUES_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST, "%s has %zu values; the limit is %d", words[which], n,
                       VALUES_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;

        if (!cn_v2_json_is_string(one))
            return cn_fail(err, CN_E_INTERNAL,
                           "Unable to parse '%s': attempt to access JSON non-string as string",
                           words[which]);
        list[i] = cn_v2_json_text(one);
    }
    return cn_trace_set(change, (enum cn_trace_key)which, list, (uint32_t)n, err);
}

int
cn_trace_parse(struct cn_str body, struct cn_trace_change *out, struct cn_error *err)
{
    json_t *root, *value;
    const char *key;
    int rc = cn_v2_json_load(body, &root, err);

    memset(out, 0, sizeof(*out));
    if (rc)
        return rc;
    if (!json_is_object(root))
        rc = cn_fail(err, CN_E_INTERNAL,
                     "Unable to parse 'settings': attempt to access JSON non-object as object");
    json_object_foreach(root, key, value)
    {
        if (!rc)
            rc = take(out, key, value, err);
    }
    json_decref(root);
    return rc;
}

void
cn_trace_write(const struct cn_str values[CN_TRACE_N_KEYS], struct cn_buf *out)
{
    for (unsigned i = 0; i < CN_TRACE_N_KEYS; i++) {
        cn_buf_printf(out, "%c\"%s\":%s", i ? ',' : '{', words[i], i == CN_TRACE_LEVEL ? "[" : "");
        cn_v2_write_text(values[i], out);
        cn_buf_puts(out, i == CN_TRACE_LEVEL ? "]" : "");
    }
    cn_buf_puts(out, "}");
}
