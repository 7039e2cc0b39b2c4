/* handlers/modules/module_config.c - reads a module's settings from the model's YAML. Worker's
 * thread.
 *
 * module_config.h shows the keys. module_bindings.c reads the arguments, results and
 * attributes. A wrong key or name is refused with its line and column, because a model that is
 * served with half of its settings gives wrong answers silently. */
#include "handlers/modules/module_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/model/model_config.h"
#include "config/yaml/yaml.h"
#include "core/text/suggest.h"
#include "handlers/modules/module_config_priv.h"

#define BUCKET_MAX 65536
#define THREADS_MAX 256
#define WARMUP_MAX 65536

#define CN_MODULE_KEY(key, type, default_text, range, help, example) key,
const char *const cn_module_torch_keys[] = {
#include "config/model/torch_keys.def"
    NULL};
const char *const cn_module_onnx_keys[] = {
#include "config/model/onnx_keys.def"
    NULL};
#undef CN_MODULE_KEY

int
cn_module_refuse(const struct cn_module_parse *parse, const struct cn_yaml *at, const char *key,
                 const char *expected)
{
    char what[64];

    snprintf(what, sizeof(what), "%s.%s", parse->config->kind->runtime, key);
    return cn_yaml_refuse(parse->name, at, what, expected, parse->err);
}

/* --- words and numbers --- */

static int
read_word(const struct cn_module_parse *parse, const struct cn_yaml *settings, const char *key,
          const char *fallback, const char **out)
{
    const struct cn_yaml *value = cn_yaml_get(settings, key);

    *out = fallback;
    if (!value)
        return 0;
    if (value->kind != CN_YAML_STRING || value->text.len == 0 || value->text.len > 1024)
        return cn_module_refuse(parse, value, key, "a name");
    *out = cn_arena_strndup(&parse->config->arena, value->text.ptr, value->text.len);
    return 0;
}

static int
read_count(const struct cn_module_parse *parse, const struct cn_yaml *settings, const char *key,
           uint32_t max, uint32_t *out)
{
    const struct cn_yaml *value = cn_yaml_get(settings, key);
    char expected[64];

    if (!value)
        return 0;
    snprintf(expected, sizeof(expected), "an integer from 1 to %" PRIu32, max);
    if (value->kind != CN_YAML_INT || value->integer < 1 || value->integer > max)
        return cn_module_refuse(parse, value, key, expected);
    *out = (uint32_t)value->integer;
    return 0;
}

static int
read_flag(const struct cn_module_parse *parse, const struct cn_yaml *settings, const char *key,
          bool *out)
{
    const struct cn_yaml *value = cn_yaml_get(settings, key);

    if (!value)
        return 0;
    if (value->kind != CN_YAML_BOOL)
        return cn_module_refuse(parse, value, key, "true or false");
    *out = value->boolean;
    return 0;
}

/* --- buckets --- */

static int
compare_counts(const void *a, const void *b)
{
    const uint32_t *left = a, *right = b;

    return (*left > *right) - (*left < *right);
}

/* A batchSize of 12 gives the buckets 1, 2, 4, 8 and 12. With `deterministic` there is only the
 * largest one, since a kernel may round differently for another batch size. */
static int
default_buckets(struct cn_module_config *config, uint32_t batch_size)
{
    uint32_t n = 0;

    if (config->deterministic || config->io->max_batch_size == 0) {
        config->buckets[n++] = config->io->max_batch_size ? batch_size : 1;
    } else {
        for (uint32_t rows = 1; rows < batch_size; rows *= 2)
            config->buckets[n++] = rows;
        config->buckets[n++] = batch_size;
    }
    config->n_buckets = n;
    return 0;
}

static int
read_buckets(const struct cn_module_parse *parse, const struct cn_yaml *settings,
             uint32_t batch_size)
{
    struct cn_module_config *config = parse->config;
    const struct cn_yaml *list = cn_yaml_get(settings, "buckets");

    if (!list)
        return default_buckets(config, batch_size);
    if (list->kind != CN_YAML_LIST || list->n_items == 0 || list->n_items > CN_MODULE_BUCKETS_MAX)
        return cn_module_refuse(parse, list, "buckets", "a list of 1 to 32 batch sizes");
    if (config->io->max_batch_size == 0)
        return cn_module_refuse(
            parse, list, "buckets",
            "no value, since with maxBatchSize 0 the tensors have no batch dimension");
    if (config->deterministic && list->n_items > 1)
        return cn_module_refuse(parse, list, "buckets",
                                "one batch size, since deterministic is true");
    for (uint32_t i = 0; i < list->n_items; i++) {
        const struct cn_yaml *rows = list->items[i];

        if (rows->kind != CN_YAML_INT || rows->integer < 1 || rows->integer > BUCKET_MAX)
            return cn_module_refuse(parse, rows, "buckets", "an integer from 1 to 65536");
        config->buckets[i] = (uint32_t)rows->integer;
    }
    config->n_buckets = list->n_items;
    qsort(config->buckets, config->n_buckets, sizeof(*config->buckets), compare_counts);
    for (uint32_t i = 1; i < config->n_buckets; i++)
        if (config->buckets[i] == config->buckets[i - 1])
            return cn_module_refuse(parse, list, "buckets", "each batch size only once");
    return 0;
}

/* --- the probe --- */

static bool
is_number(const struct cn_yaml *value)
{
    return value->kind == CN_YAML_INT || value->kind == CN_YAML_FLOAT;
}

static int
read_ranges(const struct cn_module_parse *parse, const struct cn_yaml *map)
{
    struct cn_module_config *config = parse->config;

    if (map->kind != CN_YAML_MAP)
        return cn_module_refuse(parse, map, "probe.ranges", "a map of inputs, {x: [low, high]}");
    for (uint32_t i = 0; i < map->n_items; i++) {
        const struct cn_yaml *pair = map->items[i];
        int32_t input = cn_module_find_input(config->io, pair->key);

        if (input < 0)
            return cn_module_refuse(parse, pair, "probe.ranges", "names of inputs");
        if (pair->kind != CN_YAML_LIST || pair->n_items != 2 || !is_number(pair->items[0]) ||
            !is_number(pair->items[1]) || pair->items[0]->number > pair->items[1]->number)
            return cn_module_refuse(parse, pair, "probe.ranges", "[low, high], two numbers");
        config->ranges[input] =
            (struct cn_module_range){true, pair->items[0]->number, pair->items[1]->number};
    }
    return 0;
}

/* Reads `probe`: true, false, or a map that says how to probe. */
static int
read_probe(const struct cn_module_parse *parse, const struct cn_yaml *settings)
{
    const struct cn_yaml *probe = cn_yaml_get(settings, "probe");
    struct cn_module_config *config = parse->config;

    config->probe = true;
    config->probe_seed = 1;
    config->tolerance = -1;
    config->ranges =
        cn_arena_alloc(&config->arena, (config->io->n_inputs + 1) * sizeof(*config->ranges));
    memset(config->ranges, 0, (config->io->n_inputs + 1) * sizeof(*config->ranges));
    if (!probe)
        return 0;
    if (probe->kind == CN_YAML_BOOL) {
        config->probe = probe->boolean;
        return 0;
    }
    if (probe->kind != CN_YAML_MAP)
        return cn_module_refuse(parse, probe, "probe",
                                "true, false or a map of seed, tolerance and ranges");
    for (uint32_t i = 0; i < probe->n_items; i++) {
        const struct cn_yaml *value = probe->items[i];
        int rc = 0;

        if (cn_str_eq(value->key, CN_STR("seed")) && value->kind == CN_YAML_INT &&
            value->integer >= 0)
            config->probe_seed = (uint64_t)value->integer;
        else if (cn_str_eq(value->key, CN_STR("tolerance")) && is_number(value) &&
                 value->number >= 0)
            config->tolerance = value->number;
        else if (cn_str_eq(value->key, CN_STR("ranges")))
            rc = read_ranges(parse, value);
        else
            rc =
                cn_module_refuse(parse, value, "probe",
                                 "seed, an integer from 0; tolerance, a number from 0; and ranges");
        if (rc)
            return rc;
    }
    return 0;
}

static int
read_seed(const struct cn_module_parse *parse, const struct cn_yaml *settings)
{
    const struct cn_yaml *seed = cn_yaml_get(settings, "seed");

    if (!seed)
        return 0;
    if (seed->kind != CN_YAML_INT || seed->integer < 0)
        return cn_module_refuse(parse, seed, "seed", "an integer from 0");
    parse->config->has_seed = true;
    parse->config->seed = (uint64_t)seed->integer;
    return 0;
}

static int
read_nan_policy(const struct cn_module_parse *parse, const struct cn_yaml *settings)
{
    const struct cn_yaml *policy = cn_yaml_get(settings, "nanPolicy");

    if (!policy)
        return 0;
    if (policy->kind != CN_YAML_STRING ||
        (!cn_str_eq(policy->text, CN_STR("pass")) && !cn_str_eq(policy->text, CN_STR("refuse"))))
        return cn_module_refuse(parse, policy, "nanPolicy", "pass or refuse");
    parse->config->refuse_nan = cn_str_eq(policy->text, CN_STR("refuse"));
    return 0;
}

/* --- the whole --- */

static int
check_type(const struct cn_module_parse *parse, const char *list, struct cn_str name,
           enum cn_datatype type)
{
    const struct cn_module_kind *kind = parse->config->kind;

    if (kind->takes(type))
        return 0;
    return cn_fail(parse->err, CN_E_CONFIG, "%s: %s: %.*s is %s, which %s does not support",
                   parse->name, list, CN_STR_ARG(name), cn_datatype_word(type), kind->format);
}

static int
check_tensors(const struct cn_module_parse *parse)
{
    const struct cn_model_io *io = parse->config->io;
    int rc = 0;

    for (uint32_t i = 0; !rc && i < io->n_inputs; i++) {
        rc = check_type(parse, "inputs", io->inputs[i].name, io->inputs[i].type);
        if (!rc && io->inputs[i].optional)
            rc = cn_fail(parse->err, CN_E_CONFIG,
                         "%s: inputs: %.*s is optional, but %s gets all of its arguments",
                         parse->name, CN_STR_ARG(io->inputs[i].name), parse->config->kind->called);
    }
    for (uint32_t i = 0; !rc && i < io->n_outputs; i++)
        rc = check_type(parse, "outputs", io->outputs[i].name, io->outputs[i].type);
    for (uint32_t i = 0; !rc && i < io->state.n; i++) {
        rc = check_type(parse, "state", io->state.items[i].input, io->state.items[i].type);
        if (!rc && io->state.items[i].unsaid)
            rc = cn_fail(parse->err, CN_E_CONFIG,
                         "%s: state: %.*s has a size of -1, so its first size is unknown: add "
                         "init: {dims: [...]}, with 0 for an empty tensor",
                         parse->name, CN_STR_ARG(io->state.items[i].input));
    }
    return rc;
}

static int
check_keys(const struct cn_module_parse *parse, const struct cn_yaml *settings)
{
    const char *section = parse->config->kind->runtime, *const *known = parse->config->kind->keys;
    size_t n = 0;

    while (known[n])
        n++;
    if (settings->kind != CN_YAML_MAP)
        return cn_fail(parse->err, CN_E_CONFIG, "%s:%u:%u: %s: expected a map of settings",
                       parse->name, settings->line, settings->column, section);
    for (uint32_t i = 0; i < settings->n_items; i++) {
        const struct cn_yaml *value = settings->items[i];
        char shown[CN_YAML_SHOWN_MAX];
        const char *near;
        size_t k = 0;

        while (k < n && !cn_str_eq(value->key, cn_str_from(known[k])))
            k++;
        if (k < n)
            continue;
        near = cn_suggest(value->key, known, n);
        return cn_fail(parse->err, CN_E_CONFIG, "%s:%u:%u: %s: unknown key %s%s%s%s", parse->name,
                       value->key_line, value->key_column, section,
                       cn_yaml_shown(value->key, shown), near ? " (did you mean " : "",
                       near ? near : "", near ? "?)" : "");
    }
    return 0;
}

static int
read_all(const struct cn_module_parse *parse, const struct cn_yaml *settings, uint32_t batch_size)
{
    struct cn_module_config *config = parse->config;
    int rc = check_keys(parse, settings);

    if (!rc)
        rc = check_tensors(parse);
    if (!rc)
        rc = read_word(parse, settings, "submodule", "", &config->submodule);
    if (!rc)
        rc = read_word(parse, settings, "method", config->kind->method, &config->method);
    if (!rc)
        rc = read_count(parse, settings, "threads", THREADS_MAX, &config->threads);
    if (!rc)
        rc = read_count(parse, settings, "warmup", WARMUP_MAX, &config->warmup);
    if (!rc)
        rc = read_flag(parse, settings, "deterministic", &config->deterministic);
    if (!rc)
        rc = read_flag(parse, settings, "fusion", &config->fusion);
    if (!rc)
        rc = read_flag(parse, settings, "strictBatching", &config->strict_batching);
    if (!rc)
        rc = read_probe(parse, settings);
    if (!rc)
        rc = read_seed(parse, settings);
    if (!rc)
        rc = read_nan_policy(parse, settings);
    if (!rc)
        rc = read_buckets(parse, settings, batch_size);
    return rc ? rc : cn_module_read_bindings(parse, settings);
}

/* Reads TorchServe's keys, which stand beside the map `settings`. */
static int
read_devices(const struct cn_module_parse *parse, const struct cn_yaml *root)
{
    const struct cn_yaml *type = cn_yaml_get(root, "deviceType");
    const struct cn_yaml *ids = cn_yaml_get(root, "deviceIds");
    struct cn_module_config *config = parse->config;

    if (type && !cn_str_eq(type->text, CN_STR("cpu")) && !cn_str_eq(type->text, CN_STR("gpu")))
        return cn_fail(parse->err, CN_E_CONFIG, "%s:%u:%u: deviceType: expected cpu or gpu",
                       parse->name, type->line, type->column);
    config->gpu = type && cn_str_eq(type->text, CN_STR("gpu"));
    if (!ids || !config->gpu)
        return 0;
    if (ids->kind != CN_YAML_LIST || ids->n_items < 1 || ids->n_items > CN_MODULE_DEVICES_MAX)
        return cn_fail(parse->err, CN_E_CONFIG, "%s:%u:%u: deviceIds: expected 1 to %d numbers",
                       parse->name, ids->line, ids->column, CN_MODULE_DEVICES_MAX);
    for (uint32_t i = 0; i < ids->n_items; i++) {
        const struct cn_yaml *id = ids->items[i];

        if (id->kind != CN_YAML_INT || id->integer < 0 || id->integer > 127)
            return cn_fail(parse->err, CN_E_CONFIG,
                           "%s:%u:%u: deviceIds: expected device numbers from 0 to 127",
                           parse->name, id->line, id->column);
        config->devices[i] = (uint32_t)id->integer;
    }
    config->n_devices = ids->n_items;
    return 0;
}

/* The tensors come first, because all settings refer to them by name. The kind's own settings come
 * last. */
static int
read_document(struct cn_module_config *config, const struct cn_yaml_doc *doc, uint32_t batch_size,
              struct cn_error *err)
{
    static const struct cn_yaml nothing = {.kind = CN_YAML_MAP};
    const struct cn_yaml *settings = cn_yaml_get(cn_yaml_root(doc), config->kind->runtime);
    struct cn_module_parse parse = {config, cn_yaml_name(doc), err};
    struct cn_arena *arena = &config->arena;
    int rc = cn_model_io_parse(doc, &config->io, err);

    if (rc)
        return rc;
    if (!config->io)
        return cn_fail(err, CN_E_LOAD_FAILED,
                       "%s: %s needs inputs and outputs: lists of name, dataType and dims",
                       parse.name, config->kind->model);
    config->threads = 1;
    config->warmup = 16;
    config->arguments =
        cn_arena_alloc(arena, 2 * CN_MODEL_TENSORS_MAX * sizeof(struct cn_module_binding));
    config->results =
        cn_arena_alloc(arena, 2 * CN_MODEL_TENSORS_MAX * sizeof(struct cn_module_binding));
    config->attributes =
        cn_arena_alloc(arena, 2 * CN_MODULE_VALUES_MAX * sizeof(struct cn_module_attribute));
    memset(config->attributes, 0, 2 * CN_MODULE_VALUES_MAX * sizeof(struct cn_module_attribute));
    rc = cn_model_config_check_keys(doc, err);
    if (!rc)
        rc = read_devices(&parse, cn_yaml_root(doc));
    if (!rc)
        rc = read_all(&parse, settings ? settings : &nothing, batch_size);
    if (!rc && config->kind->read)
        rc = config->kind->read(config, doc, settings ? settings : &nothing, err);
    return rc;
}

int
cn_module_config_parse(struct cn_module_config *config, const struct cn_module_kind *kind,
                       const struct cn_yaml_doc *doc, uint32_t batch_size, struct cn_error *err)
{
    int rc;

    memset(config, 0, sizeof(*config));
    config->kind = kind;
    cn_arena_init(&config->arena);
    rc = read_document(config, doc, batch_size, err);
    if (rc)
        cn_module_config_fini(config);
    return rc;
}

int
cn_module_config_read(struct cn_module_config *config, const struct cn_module_kind *kind,
                      const char *dir, const char *file, uint32_t batch_size, struct cn_error *err)
{
    struct cn_yaml_doc *doc = NULL;
    struct cn_buf path;
    int rc;

    memset(config, 0, sizeof(*config));
    if (!*file)
        return cn_fail(err, CN_E_LOAD_FAILED,
                       "%s needs a YAML (--config-file) that declares its inputs and outputs",
                       kind->model);
    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/%s", dir, file);
    cn_buf_append(&path, "", 1);
    rc = cn_yaml_parse_file_as(path.data, file, &doc, err);
    cn_buf_fini(&path);
    if (rc)
        return rc;
    rc = cn_module_config_parse(config, kind, doc, batch_size, err);
    cn_yaml_destroy(doc);
    return rc;
}

void
cn_module_config_fini(struct cn_module_config *config)
{
    cn_model_io_unref(config->io);
    cn_arena_fini(&config->arena);
    memset(config, 0, sizeof(*config));
}
