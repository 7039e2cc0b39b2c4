/* handlers/onnx/onnx_config.c - the settings under `onnx` in a model's YAML. Worker's thread.
 *
 *   onnx:
 *     providers: [{CUDAExecutionProvider: {gpu_mem_limit: 2147483648}}, CPUExecutionProvider]
 *     sessionOptions: {session.set_denormal_as_zero: 1}   # passed on to onnxruntime as they are
 *     graphOptimization: extended                         # none, basic, extended or all
 *     interOpThreads: 2
 *     library: /opt/onnxruntime/lib                       # a file, or a folder that has it
 * The settings that all modules have, such as threads and buckets, are read by
 * handlers/modules/module_config.c before these. What is read here lies in the configuration's
 * arena and lives as long as the runtime. */
#include "handlers/onnx/onnx_config.h"

#include <stdio.h>
#include <string.h>

#include "handlers/onnx/ort_abi.h"

#define THREADS_MAX 256

struct read {
    struct cn_module_config *config;
    struct cn_onnx_settings *settings;
    const char *name; /* name of the document */
    struct cn_error *err;
};

static int
refuse(const struct read *read, const struct cn_yaml *at, const char *key, const char *expected)
{
    char what[64];

    snprintf(what, sizeof(what), "onnx.%s", key);
    return cn_yaml_refuse(read->name, at, what, expected, read->err);
}

static const char *
keep(const struct read *read, struct cn_str text)
{
    return cn_arena_strndup(&read->config->arena, text.ptr, text.len);
}

static bool
is_scalar(const struct cn_yaml *value)
{
    return value->kind != CN_YAML_LIST && value->kind != CN_YAML_MAP && value->text.len <= 1024;
}

static int
read_entries(const struct read *read, const struct cn_yaml *map, const char *key,
             struct cn_onnx_entries *out)
{
    if (!map)
        return 0;
    if (map->kind != CN_YAML_MAP || map->n_items > CN_ONNX_ENTRIES_MAX)
        return refuse(read, map, key, "a map of up to 64 names and values");
    out->keys = cn_arena_alloc(&read->config->arena, (map->n_items + 2) * sizeof(char *));
    out->values = cn_arena_alloc(&read->config->arena, (map->n_items + 2) * sizeof(char *));
    for (uint32_t i = 0; i < map->n_items; i++) {
        if (!is_scalar(map->items[i]))
            return refuse(read, map->items[i], key, "a word or a number for each name");
        out->keys[out->n] = keep(read, map->items[i]->key);
        out->values[out->n++] = keep(read, map->items[i]->text);
    }
    return 0;
}

/* Reads a provider: NAME, or {NAME: {option: value}}. */
static int
read_provider(const struct read *read, const struct cn_yaml *value)
{
    struct cn_onnx_provider *out = &read->settings->providers[read->settings->n_providers++];

    if (value->kind == CN_YAML_MAP && value->n_items == 1) {
        out->name = keep(read, value->items[0]->key);
        return read_entries(read, value->items[0], "providers", &out->options);
    }
    if (value->kind != CN_YAML_STRING || !is_scalar(value))
        return refuse(read, value, "providers", "names of providers, or {NAME: {option: value}}");
    out->name = keep(read, value->text);
    return 0;
}

/* If the YAML names no provider, deviceType: gpu sets the provider and the device. */
static void
default_providers(const struct read *read)
{
    struct cn_onnx_settings *settings = read->settings;

    if (read->config->gpu)
        settings->providers[settings->n_providers++].name = "CUDAExecutionProvider";
    settings->providers[settings->n_providers++].name = "CPUExecutionProvider";
}

static int
read_providers(const struct read *read, const struct cn_yaml *list)
{
    int rc = 0;

    if (!list) {
        default_providers(read);
        return 0;
    }
    if (list->kind != CN_YAML_LIST || list->n_items == 0 || list->n_items > CN_ONNX_PROVIDERS_MAX)
        return refuse(read, list, "providers", "a list of 1 to 8 execution providers");
    for (uint32_t i = 0; rc == 0 && i < list->n_items; i++)
        rc = read_provider(read, list->items[i]);
    return rc;
}

static int
read_optimization(const struct read *read, const struct cn_yaml *value)
{
    static const struct {
        const char *word;
        int level;
    } levels[] = {{"none", ORT_OPTIMIZE_NONE},
                  {"basic", ORT_OPTIMIZE_BASIC},
                  {"extended", ORT_OPTIMIZE_EXTENDED},
                  {"all", ORT_OPTIMIZE_ALL}};

    read->settings->optimization = ORT_OPTIMIZE_ALL;
    if (!value)
        return 0;
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
        if (cn_str_eq(value->text, cn_str_from(levels[i].word))) {
            read->settings->optimization = levels[i].level;
            return 0;
        }
    return refuse(read, value, "graphOptimization", "none, basic, extended or all");
}

static int
read_threads(const struct read *read, const struct cn_yaml *value)
{
    read->settings->inter_op_threads = 1;
    if (!value)
        return 0;
    if (value->kind != CN_YAML_INT || value->integer < 1 || value->integer > THREADS_MAX)
        return refuse(read, value, "interOpThreads", "an integer from 1 to 256");
    read->settings->inter_op_threads = (uint32_t)value->integer;
    return 0;
}

/* Refuses a state that begins as None, because ONNX has no None. */
static int
check_states(const struct read *read)
{
    const struct cn_state_specs *states = &read->config->io->state;

    for (uint32_t i = 0; i < states->n; i++)
        if (states->items[i].init == CN_STATE_NONE)
            return cn_fail(read->err, CN_E_CONFIG,
                           "%s: state: %.*s has init none, which only TorchScript models support; "
                           "a state that grows begins with a dimension of 0: init: {dims: [...]}",
                           read->name, CN_STR_ARG(states->items[i].input));
    return 0;
}

int
cn_onnx_config_read(struct cn_module_config *config, const struct cn_yaml_doc *doc,
                    const struct cn_yaml *settings, struct cn_error *err)
{
    struct cn_onnx_settings *own = cn_arena_alloc(&config->arena, sizeof(*own));
    struct read read = {config, own, cn_yaml_name(doc), err};
    const struct cn_yaml *library = cn_yaml_get(settings, "library");
    int rc;

    memset(own, 0, sizeof(*own));
    own->library = "";
    config->own = own;
    if (library && (library->kind != CN_YAML_STRING || !is_scalar(library)))
        return refuse(&read, library, "library", "a path");
    if (library)
        own->library = keep(&read, library->text);
    rc = read_providers(&read, cn_yaml_get(settings, "providers"));
    if (!rc)
        rc = read_entries(&read, cn_yaml_get(settings, "sessionOptions"), "sessionOptions",
                          &own->options);
    if (!rc)
        rc = read_optimization(&read, cn_yaml_get(settings, "graphOptimization"));
    if (!rc)
        rc = read_threads(&read, cn_yaml_get(settings, "interOpThreads"));
    return rc ? rc : check_states(&read);
}

/* Then the session runs in the calling thread alone, so a process that has loaded the model can
 * still be forked. */
bool
cn_onnx_is_plain(const struct cn_module_config *config)
{
    const struct cn_onnx_settings *settings = cn_onnx_settings(config);

    return config->threads == 1 && settings->inter_op_threads == 1 && settings->n_providers == 1 &&
           strcmp(settings->providers[0].name, "CPUExecutionProvider") == 0;
}
