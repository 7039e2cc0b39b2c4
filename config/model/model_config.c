/* config/model/model_config.c - applies a model's YAML to the defaults of model_options.def. Any
 * thread.
 *
 * The document is walked map by map, and the path of each key ("state.durability") is looked up in
 * the table (model_options.c). A key may be
 * - an option, in camelCase or with underscores, but not in both spellings at once,
 * - a map that holds options, into which the walk goes,
 * - a key that another file reads: inputs and outputs (model_io.c), state tensors (model_state.c),
 *   batching blocks (batching.c), instance_group (instances.c),
 * - a key of TorchServe that has no effect here, which causes a warning if its value matters,
 * - anything under `handler`, or an unknown map, which belongs to the handler,
 * - an unknown scalar, which causes a warning with the nearest known name, because a typo must not
 *   silently do nothing. */
#include "config/model/model_config.h"

#include <inttypes.h>
#include <stdarg.h>

#include "config/model/batching.h"
#include "config/model/instances.h"
#include "config/model/model_io.h"
#include "config/model/model_options_priv.h"
#include "config/model/model_state.h"
#include "config/model/model_words.h"
#include "config/model/replicas.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/text/suggest.h"

/* A smaller limit of handler.limits.memoryBytes is certainly a mistake. */
#define MEMORY_MIN_BYTES (1 << 20)

/* What a walk through a document needs. */
struct walk {
    struct cn_model_config *config;
    const char *name; /* the document's name */
    cn_config_warn_fn warn;
    void *ctx;
    struct cn_error *err;
};

static void __attribute__((format(printf, 4, 5)))
warn_at(const struct walk *walk, unsigned line, unsigned column, const char *fmt, ...)
{
    char text[640], where[384];
    va_list args;

    if (walk->warn == NULL)
        return;
    va_start(args, fmt);
    vsnprintf(where, sizeof(where), fmt, args);
    va_end(args);
    snprintf(text, sizeof(text), "%.200s:%u:%u: %s", walk->name, line, column, where);
    walk->warn(walk->ctx, text);
}

/* Describes for an error message what the document has in place of a valid value: "the word
 * \"x\"", "a list", 5. */
static const char *
found(const struct cn_yaml *value, char out[CN_YAML_SHOWN_MAX + 32])
{
    char text[CN_YAML_SHOWN_MAX];

    if (value->kind == CN_YAML_STRING)
        snprintf(out, CN_YAML_SHOWN_MAX + 32, "the word \"%s\"", cn_yaml_shown(value->text, text));
    else if (value->kind == CN_YAML_LIST || value->kind == CN_YAML_MAP ||
             value->kind == CN_YAML_NULL)
        snprintf(out, CN_YAML_SHOWN_MAX + 32, "%s", cn_yaml_kind_word(value->kind));
    else
        snprintf(out, CN_YAML_SHOWN_MAX + 32, "%s", cn_yaml_shown(value->text, text));
    return out;
}

static int
wrong_value(const struct walk *walk, const char *path, const struct cn_yaml *value,
            const char *expected)
{
    char what[CN_YAML_SHOWN_MAX + 32];

    return cn_fail(walk->err, CN_E_CONFIG, "%s:%u:%u: %s: expected %s, found %s", walk->name,
                   value->line, value->column, path, expected, found(value, what));
}

/* The message does not show the value, which may have a password. */
static int
apply_store(const struct walk *walk, const struct row *row, const struct cn_yaml *value)
{
    struct cn_error why;

    if (value->kind != CN_YAML_STRING)
        return cn_fail(
            walk->err, CN_E_CONFIG,
            "%s:%u:%u: %s: expected " CN_STATE_STORE_EMBEDDED " or the URL of a store, found %s",
            walk->name, value->line, value->column, row->path, cn_yaml_kind_word(value->kind));
    if (cn_state_store_text_set((void *)((char *)walk->config + row->offset), value->text, &why) !=
        0)
        return cn_fail(walk->err, CN_E_CONFIG, "%s:%u:%u: %s: %s", walk->name, value->line,
                       value->column, row->path, why.message);
    return 0;
}

static int
apply_replicas(const struct walk *walk, const struct row *row, const struct cn_yaml *value)
{
    char expected[96];
    uint32_t replicas;

    snprintf(expected, sizeof(expected), "an integer from 0 to %" PRIu64 ", or all", row->max);
    if (!cn_replicas_take(value, row->max, &replicas))
        return wrong_value(walk, row->path, value, expected);
    cn_model_option_store(walk->config, row, replicas);
    return 0;
}

/* Writes a value to its option if it has the right type and range. */
static int
apply_value(const struct walk *walk, const struct row *row, const struct cn_yaml *value)
{
    char expected[96];
    int level;

    switch (row->kind) {
    case KIND_BOOL:
        if (value->kind != CN_YAML_BOOL)
            return wrong_value(walk, row->path, value, "true or false");
        cn_model_option_store(walk->config, row, value->boolean);
        return 0;
    case KIND_DURABILITY:
        level = value->kind == CN_YAML_STRING ? cn_durability_parse(value->text) : -1;
        if (level < 0)
            return wrong_value(walk, row->path, value, "none, process or power");
        cn_model_option_store(walk->config, row, (uint64_t)level);
        return 0;
    case KIND_SWAP:
        level = value->kind == CN_YAML_STRING ? cn_swap_policy_parse(value->text) : -1;
        if (level < 0)
            return wrong_value(walk, row->path, value, "pin, migrate, reset or reject");
        cn_model_option_store(walk->config, row, (uint64_t)level);
        return 0;
    case KIND_EXPIRED:
        level = value->kind == CN_YAML_STRING ? cn_on_expired_parse(value->text) : -1;
        if (level < 0)
            return wrong_value(walk, row->path, value, "refuse or restart");
        cn_model_option_store(walk->config, row, (uint64_t)level);
        return 0;
    case KIND_PARALLEL:
        level = value->kind == CN_YAML_STRING ? cn_parallel_parse(value->text) : -1;
        if (level < 0)
            return wrong_value(walk, row->path, value,
                               "custom, because pp, tp and pptp need several processes for one "
                               "worker, and a worker here is one process");
        cn_model_option_store(walk->config, row, (uint64_t)level);
        return 0;
    case KIND_SWITCH:
        if (value->kind != CN_YAML_STRING ||
            (!cn_str_eq(value->text, CN_STR("on")) && !cn_str_eq(value->text, CN_STR("off"))))
            return wrong_value(walk, row->path, value, "on or off");
        cn_model_option_store(walk->config, row, cn_str_eq(value->text, CN_STR("on")));
        return 0;
    case KIND_STORE:
        return apply_store(walk, row, value);
    case KIND_REPLICAS:
        return apply_replicas(walk, row, value);
    case KIND_WORD:
        level = value->kind == CN_YAML_STRING ? cn_model_word_parse(row->path, value->text) : -1;
        if (level < 0)
            return wrong_value(walk, row->path, value,
                               cn_model_words_text(row->path, " or ", expected));
        cn_model_option_store(walk->config, row, (uint64_t)level);
        return 0;
    case KIND_UINT:
        snprintf(expected, sizeof(expected), "an integer from %" PRIu64 " to %" PRIu64, row->min,
                 row->max);
        if (value->kind != CN_YAML_INT || value->integer < 0 ||
            (uint64_t)value->integer < row->min || (uint64_t)value->integer > row->max)
            return wrong_value(walk, row->path, value, expected);
        cn_model_option_store(walk->config, row, (uint64_t)value->integer);
        return 0;
    }
    cn_unreachable();
}

static void
warn_unknown(const struct walk *walk, const char *prefix, const struct cn_yaml *value)
{
    char key[CN_YAML_SHOWN_MAX], name[64];

    if (walk->warn == NULL)
        return;
    cn_yaml_shown(value->key, key);
    if (cn_model_option_nearest(prefix, value->key, name) != NULL)
        warn_at(walk, value->key_line, value->key_column, "unknown key %s%s (did you mean %s%s?)",
                prefix, key, prefix, name);
    else
        warn_at(walk, value->key_line, value->key_column,
                "unknown key %s%s; only the handler can use it", prefix, key);
}

bool
cn_model_config_warning_concerns(const char *line, const char *runtime)
{
    if (!strstr(line, ": deviceType has no effect") && !strstr(line, ": deviceIds has no effect"))
        return true;
    return strcmp(runtime, "lua") == 0 || strcmp(runtime, "c") == 0;
}

/* A key of TorchServe without an effect here warns only if its value differs from the harmless one,
 * so that archives with TorchServe's defaults load silently. */
static bool
warn_torchserve(const struct walk *walk, const struct cn_yaml *value)
{
    const struct torchserve_key *known = cn_model_torchserve_key(value->key);

    if (!known)
        return false;
    if (value->kind != CN_YAML_NULL &&
        (known->harmless[0] == '\0' || !cn_str_eq(value->text, cn_str_from(known->harmless))))
        warn_at(walk, value->key_line, value->key_column, "%s has no effect here: %s", known->key,
                known->note);
    return true;
}

/* Fails because the option is in the map in its other spelling, too. */
static int
fail_twice(const struct walk *walk, const struct row *row, const struct cn_yaml *value)
{
    char shown[CN_YAML_SHOWN_MAX];

    return cn_fail(walk->err, CN_E_CONFIG,
                   "%s:%u:%u: %s and %s set the same thing; remove one of them", walk->name,
                   value->key_line, value->key_column, cn_yaml_shown(value->key, shown), row->path);
}

/* Applies a map. The depth of the recursion is that of the table's paths (3), not of the document.
 */
static int
apply_map(const struct walk *walk, const char *prefix, const struct cn_yaml *map)
{
    bool in_handler = strncmp(prefix, "handler.", 8) == 0;

    for (uint32_t i = 0; i < map->n_items; i++) {
        const struct cn_yaml *value = map->items[i];
        const struct row *row;
        char path[128];
        int rc = 0;

        if (cn_model_state_owns(prefix, value))
            continue; /* model_state.c reads it */
        if (prefix[0] == '\0' && (cn_batching_owns(value) || cn_instances_own(value)))
            continue; /* batching.c and instances.c read them */
        if (prefix[0] == '\0' && cn_str_eq(value->key, CN_STR("python"))) {
            /* management/models/python_models.c reads it */
            if (value->kind == CN_YAML_STRING && value->text.len > 0)
                continue;
            return wrong_value(walk, "python", value, "the path or the name of an interpreter");
        }
        /* A key with a dot or a NUL in it is not an option: "a.b" does not mean b in a. */
        if (value->key.len < 64 && memchr(value->key.ptr, '.', value->key.len) == NULL &&
            memchr(value->key.ptr, '\0', value->key.len) == NULL)
            snprintf(path, sizeof(path), "%s%.*s", prefix, CN_STR_ARG(value->key));
        else
            path[0] = '\0';
        row = cn_model_option_find(path);
        if (row != NULL && strcmp(row->path, path) != 0 &&
            cn_yaml_get(map, row->path + strlen(prefix))) {
            rc = fail_twice(walk, row, value);
        } else if (row != NULL) {
            rc = apply_value(walk, row, value);
        } else if (path[0] != '\0' && cn_model_option_is_branch(path)) {
            bool handlers_own = strncmp(path, "handler", 7) == 0;
            if (value->kind == CN_YAML_MAP) {
                strcat(path, ".");
                rc = apply_map(walk, path, value);
            } else if (value->kind != CN_YAML_NULL && !handlers_own) {
                rc = wrong_value(walk, path, value, "a map of settings");
            }
        } else if (prefix[0] == '\0' && cn_model_io_knows(value->key)) {
            continue; /* model_io.c reads it */
        } else if (!in_handler && !(prefix[0] == '\0' && warn_torchserve(walk, value)) &&
                   !(prefix[0] == '\0' && value->kind == CN_YAML_MAP)) {
            warn_unknown(walk, prefix, value);
        }
        if (rc != 0)
            return rc;
    }
    return 0;
}

int
cn_model_config_apply(struct cn_model_config *config, const struct cn_yaml_doc *doc,
                      cn_config_warn_fn warn, void *ctx, struct cn_error *err)
{
    const struct cn_yaml *root = cn_yaml_root(doc);
    struct walk walk = {config, cn_yaml_name(doc), warn, ctx, err};
    int rc;

    if (root->kind != CN_YAML_MAP)
        return wrong_value(&walk, "the document", root, "a map of settings");
    rc = apply_map(&walk, "", root);
    return rc ? rc : cn_instances_apply(doc, config, err);
}

/* Keys of the document that are not in the table, because other files read them. */
static const char *const other_keys[] = {"torch",
                                         "onnx",
                                         "inputs",
                                         "outputs",
                                         "maxBatchSize",
                                         "decoupled",
                                         "sequenceBatching",
                                         "sequence_batching",
                                         "instance_group",
                                         "instanceGroup",
                                         "dynamic_batching",
                                         "dynamicBatching",
                                         "max_batch_size",
                                         "deviceType",
                                         "deviceIds",
                                         "python",
                                         "input",
                                         "output",
                                         "model_transaction_policy"};
#define N_OTHER_KEYS (sizeof(other_keys) / sizeof(other_keys[0]))

/* Is it a key of the document that somebody reads, or that is known to have no effect? */
static bool
is_known(const struct cn_yaml *value)
{
    char path[64];

    for (size_t i = 0; i < N_OTHER_KEYS; i++)
        if (cn_str_eq(value->key, cn_str_from(other_keys[i])))
            return true;
    if (cn_model_torchserve_key(value->key))
        return true;
    if (value->key.len >= sizeof(path))
        return false;
    snprintf(path, sizeof(path), "%.*s", CN_STR_ARG(value->key));
    return cn_model_option_find(path) || cn_model_option_is_branch(path) ||
           cn_batching_owns(value) || cn_instances_own(value) || cn_model_io_knows(value->key);
}

int
cn_model_config_check_keys(const struct cn_yaml_doc *doc, struct cn_error *err)
{
    const struct cn_yaml *root = cn_yaml_root(doc);

    for (uint32_t i = 0; root->kind == CN_YAML_MAP && i < root->n_items; i++) {
        const struct cn_yaml *value = root->items[i];
        char near[64], shown[CN_YAML_SHOWN_MAX];
        const char *best;

        if (is_known(value))
            continue;
        best = cn_suggest(value->key, other_keys, N_OTHER_KEYS);
        if (!best)
            best = cn_model_option_nearest("", value->key, near);
        if (best)
            return cn_fail(err, CN_E_CONFIG, "%s:%u:%u: unknown key %s (did you mean %s?)",
                           cn_yaml_name(doc), value->key_line, value->key_column,
                           cn_yaml_shown(value->key, shown), best);
    }
    return 0;
}

/* Each of these rules concerns several settings, which may come from different sources. So the
 * rules are checked when all sources have been applied. */
int
cn_model_config_check(const struct cn_model_config *config, struct cn_error *err)
{
    if (config->max_workers != 0 && config->max_workers < config->min_workers)
        return cn_fail(err, CN_E_CONFIG,
                       "maxWorkers %" PRIu32 " is below minWorkers %" PRIu32
                       "; raise it or leave it out",
                       config->max_workers, config->min_workers);
    /* If state.maxBytes has its default, it is not compared: the user has asked for nothing that
     * contradicts the store's size. A state that does not fit is refused when it comes. */
    if (config->store_max_bytes < config->state_max_bytes &&
        config->state_max_bytes != cn_model_option_default("state.maxBytes"))
        return cn_fail(err, CN_E_CONFIG,
                       "state.storeMaxBytes %" PRIu64 " cannot hold one state of"
                       " state.maxBytes %" PRIu64,
                       config->store_max_bytes, config->state_max_bytes);
    if (config->memory_max_bytes > 0 && config->memory_max_bytes < MEMORY_MIN_BYTES)
        return cn_fail(err, CN_E_CONFIG,
                       "handler.limits.memoryBytes is %" PRIu64
                       "; allowed are 0 and values from %d on",
                       config->memory_max_bytes, MEMORY_MIN_BYTES);
    if (config->io && config->io->state.n > 0 && !config->sequence_batching)
        return cn_fail(err, CN_E_CONFIG,
                       "state tensors need sequences: set sequenceBatching: true, or remove the "
                       "list of state tensors");
    if (cn_replicas_check(config, false, err) != 0)
        return err->code;
    return cn_stream_input_check(config, NULL, err);
}

/* Reads what the document says about tensors and batches, and forgets it. */
static int
check_tensors(const struct cn_model_config *config, const struct cn_yaml_doc *doc,
              struct cn_error *err)
{
    struct cn_model_io *io;
    int rc = cn_model_io_parse(doc, &io, err);

    if (rc != 0)
        return rc;
    rc = cn_batching_parse(doc, cn_yaml_name(doc), io, err);
    if (rc == 0)
        rc = cn_stream_input_check(config, io, err);
    cn_model_io_unref(io);
    return rc;
}

int
cn_model_config_load(struct cn_model_config *config, const char *path, const char *name,
                     bool tensors, cn_config_warn_fn warn, void *ctx, struct cn_error *err)
{
    struct cn_yaml_doc *doc;
    struct cn_error inner = {0};
    int rc = cn_yaml_parse_file_as(path, name, &doc, err);

    if (rc != 0)
        return rc;
    rc = cn_model_config_apply(config, doc, warn, ctx, err);
    if (rc == 0 && tensors)
        rc = check_tensors(config, doc, err);
    cn_yaml_destroy(doc);
    if (rc == 0 && cn_model_config_check(config, &inner) != 0)
        rc = cn_fail(err, inner.code, "%s: %s", name, inner.message);
    return rc;
}
