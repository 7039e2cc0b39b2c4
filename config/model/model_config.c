/* config/model/model_config.c - applies a model's YAML to the defaults of model_options.def. Any
 * thread.
 *
 * The table drives everything: defaults, types, ranges, messages and the manual page. A new option
 * is a new row.
 *
 * The document is walked map by map, and the path of each key ("state.durability") is looked up in
 * the table. A key may be
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
#include "config/model/model_state.h"
#include "config/model/model_words.h"
#include "config/model/replicas.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/text/suggest.h"

/* A smaller limit of handler.limits.memoryBytes is certainly a mistake. */
#define MEMORY_MIN_BYTES (1 << 20)

enum kind {
    KIND_UINT,
    KIND_BOOL,
    KIND_DURABILITY,
    KIND_SWAP,
    KIND_EXPIRED,
    KIND_PARALLEL,
    KIND_SWITCH,
    KIND_STORE,
    KIND_REPLICAS,
    KIND_WORD
};

struct row {
    const char *path; /* "a.b" */
    enum kind kind;
    size_t offset, bytes;
    uint64_t default_value, min, max;
    const char *help;
};

static const struct row rows[] = {
#define CN_MODEL_OPTION(field, c_type, kind, yaml_path, default_, min, max, help)                  \
    {                                                                                              \
        yaml_path,                                                                                 \
        KIND_##kind,                                                                               \
        offsetof(struct cn_model_config, field),                                                   \
        sizeof(c_type),                                                                            \
        default_,                                                                                  \
        min,                                                                                       \
        max,                                                                                       \
        help},
#include "config/model/model_options.def"
#undef CN_MODEL_OPTION
};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct {
    const char *key, *harmless, *note;
} torchserve_keys[] = {
#define CN_TORCHSERVE_KEY(key, harmless, note) {key, harmless, note},
#include "config/model/torchserve_keys.def"
#undef CN_TORCHSERVE_KEY
};
#define N_TORCHSERVE_KEYS (sizeof(torchserve_keys) / sizeof(torchserve_keys[0]))

/* What a walk through a document needs. */
struct walk {
    struct cn_model_config *config;
    const char *name; /* the document's name */
    cn_config_warn_fn warn;
    void *ctx;
    struct cn_error *err;
};

static const char *const durability_words[] = {"none", "process", "power"};
static const char *const swap_words[] = {"pin", "migrate", "reset", "reject"};
static const char *const expired_words[] = {"refuse", "restart"};
static const char *const parallel_words[] = {"", "custom"};

static int
find_word(const char *const *words, int n, struct cn_str word)
{
    for (int i = 0; i < n; i++)
        if (cn_str_eq(word, cn_str_from(words[i])))
            return i;
    return -1;
}

int
cn_durability_parse(struct cn_str word)
{
    return find_word(durability_words, 3, word);
}

const char *
cn_durability_word(enum cn_durability durability)
{
    cn_assert((unsigned)durability < 3);
    return durability_words[durability];
}

int
cn_swap_policy_parse(struct cn_str word)
{
    return find_word(swap_words, 4, word);
}

const char *
cn_swap_policy_word(enum cn_swap_policy policy)
{
    cn_assert((unsigned)policy < 4);
    return swap_words[policy];
}

int
cn_on_expired_parse(struct cn_str word)
{
    return find_word(expired_words, 2, word);
}

const char *
cn_on_expired_word(enum cn_on_expired what)
{
    cn_assert((unsigned)what < 2);
    return expired_words[what];
}

int
cn_parallel_parse(struct cn_str word)
{
    return find_word(parallel_words, 2, word);
}

const char *
cn_parallel_word(enum cn_parallel parallel)
{
    cn_assert((unsigned)parallel < 2);
    return parallel_words[parallel];
}

/* Writes a value to the option's member, which has the type that its kind names. */
static void
store(struct cn_model_config *config, const struct row *row, uint64_t value)
{
    char *at = (char *)config + row->offset;

    if (row->kind == KIND_BOOL || row->kind == KIND_SWITCH)
        *(bool *)at = value != 0;
    else if (row->kind == KIND_DURABILITY)
        *(enum cn_durability *)at = (enum cn_durability)value;
    else if (row->kind == KIND_SWAP)
        *(enum cn_swap_policy *)at = (enum cn_swap_policy)value;
    else if (row->kind == KIND_EXPIRED)
        *(enum cn_on_expired *)at = (enum cn_on_expired)value;
    else if (row->kind == KIND_PARALLEL)
        *(enum cn_parallel *)at = (enum cn_parallel)value;
    else if (row->kind == KIND_STORE)
        memset(at, 0, row->bytes); /* the default; apply_store writes others */
    else if (row->bytes == sizeof(uint64_t))
        memcpy(at, &value, sizeof(value));
    else
        *(uint32_t *)at = (uint32_t)value;
}

void
cn_model_config_init(struct cn_model_config *config)
{
    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < N_ROWS; i++)
        store(config, &rows[i], rows[i].default_value);
}

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
    store(walk->config, row, replicas);
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
        store(walk->config, row, value->boolean);
        return 0;
    case KIND_DURABILITY:
        level = value->kind == CN_YAML_STRING ? cn_durability_parse(value->text) : -1;
        if (level < 0)
            return wrong_value(walk, row->path, value, "none, process or power");
        store(walk->config, row, (uint64_t)level);
        return 0;
    case KIND_SWAP:
        level = value->kind == CN_YAML_STRING ? cn_swap_policy_parse(value->text) : -1;
        if (level < 0)
            return wrong_value(walk, row->path, value, "pin, migrate, reset or reject");
        store(walk->config, row, (uint64_t)level);
        return 0;
    case KIND_EXPIRED:
        level = value->kind == CN_YAML_STRING ? cn_on_expired_parse(value->text) : -1;
        if (level < 0)
            return wrong_value(walk, row->path, value, "refuse or restart");
        store(walk->config, row, (uint64_t)level);
        return 0;
    case KIND_PARALLEL:
        level = value->kind == CN_YAML_STRING ? cn_parallel_parse(value->text) : -1;
        if (level < 0)
            return wrong_value(walk, row->path, value,
                               "custom, because pp, tp and pptp need several processes for one "
                               "worker, and a worker here is one process");
        store(walk->config, row, (uint64_t)level);
        return 0;
    case KIND_SWITCH:
        if (value->kind != CN_YAML_STRING ||
            (!cn_str_eq(value->text, CN_STR("on")) && !cn_str_eq(value->text, CN_STR("off"))))
            return wrong_value(walk, row->path, value, "on or off");
        store(walk->config, row, cn_str_eq(value->text, CN_STR("on")));
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
        store(walk->config, row, (uint64_t)level);
        return 0;
    case KIND_UINT:
        snprintf(expected, sizeof(expected), "an integer from %" PRIu64 " to %" PRIu64, row->min,
                 row->max);
        if (value->kind != CN_YAML_INT || value->integer < 0 ||
            (uint64_t)value->integer < row->min || (uint64_t)value->integer > row->max)
            return wrong_value(walk, row->path, value, expected);
        store(walk->config, row, (uint64_t)value->integer);
        return 0;
    }
    cn_unreachable();
}

/* Is `path` a map that holds options, for example "state" of "state.durability"? */
static bool
is_branch(const char *path)
{
    size_t len = strlen(path);

    for (size_t i = 0; i < N_ROWS; i++) {
        if (strncmp(rows[i].path, path, len) == 0 && rows[i].path[len] == '.')
            return true;
    }
    return false;
}

/* The known name nearest to `key` in the map `prefix` ("" or "state."), or NULL. */
static const char *
nearest(const char *prefix, struct cn_str key, char out[64])
{
    const char *names[N_ROWS + N_TORCHSERVE_KEYS], *best;
    char copies[N_ROWS][64];
    size_t n = 0, len = strlen(prefix);

    for (size_t i = 0; i < N_ROWS; i++) {
        if (strncmp(rows[i].path, prefix, len) != 0)
            continue;
        snprintf(copies[i], sizeof(copies[i]), "%.*s", (int)strcspn(rows[i].path + len, "."),
                 rows[i].path + len);
        names[n++] = copies[i];
    }
    for (size_t i = 0; len == 0 && i < N_TORCHSERVE_KEYS; i++)
        names[n++] = torchserve_keys[i].key;
    best = cn_suggest(key, names, n);
    if (best == NULL)
        return NULL;
    snprintf(out, 64, "%s", best);
    return out;
}

static void
warn_unknown(const struct walk *walk, const char *prefix, const struct cn_yaml *value)
{
    char key[CN_YAML_SHOWN_MAX], name[64];

    cn_yaml_shown(value->key, key);
    if (nearest(prefix, value->key, name) != NULL)
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
    for (size_t i = 0; i < N_TORCHSERVE_KEYS; i++) {
        if (!cn_str_eq(value->key, cn_str_from(torchserve_keys[i].key)))
            continue;
        if (value->kind != CN_YAML_NULL &&
            (torchserve_keys[i].harmless[0] == '\0' ||
             !cn_str_eq(value->text, cn_str_from(torchserve_keys[i].harmless))))
            warn_at(walk, value->key_line, value->key_column, "%s has no effect here: %s",
                    torchserve_keys[i].key, torchserve_keys[i].note);
        return true;
    }
    return false;
}

/* Is `path` this option's, or the same with underscores: batch_size for batchSize? */
static bool
names_row(const struct row *row, const char *path)
{
    const char *known = row->path;

    if (strcmp(known, path) == 0)
        return true;
    if (!strchr(path, '_'))
        return false;
    for (; *path; path++) {
        if (*path == '_')
            continue;
        if (*path != (*known >= 'A' && *known <= 'Z' ? *known + 'a' - 'A' : *known))
            return false;
        known++;
    }
    return *known == '\0';
}

static const struct row *
find_row(const char *path)
{
    for (size_t r = 0; path[0] != '\0' && r < N_ROWS; r++)
        if (names_row(&rows[r], path))
            return &rows[r];
    return NULL;
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
        row = find_row(path);
        if (row != NULL && strcmp(row->path, path) != 0 &&
            cn_yaml_get(map, row->path + strlen(prefix))) {
            rc = fail_twice(walk, row, value);
        } else if (row != NULL) {
            rc = apply_value(walk, row, value);
        } else if (path[0] != '\0' && is_branch(path)) {
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
    for (size_t i = 0; i < N_TORCHSERVE_KEYS; i++)
        if (cn_str_eq(value->key, cn_str_from(torchserve_keys[i].key)))
            return true;
    if (value->key.len >= sizeof(path))
        return false;
    snprintf(path, sizeof(path), "%.*s", CN_STR_ARG(value->key));
    return find_row(path) || is_branch(path) || cn_batching_owns(value) ||
           cn_instances_own(value) || cn_model_io_knows(value->key);
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
            best = nearest("", value->key, near);
        if (best)
            return cn_fail(err, CN_E_CONFIG, "%s:%u:%u: unknown key %s (did you mean %s?)",
                           cn_yaml_name(doc), value->key_line, value->key_column,
                           cn_yaml_shown(value->key, shown), best);
    }
    return 0;
}

static uint64_t
default_of(const char *path)
{
    size_t i = 0;

    while (strcmp(rows[i].path, path) != 0)
        i++;
    return rows[i].default_value;
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
        config->state_max_bytes != default_of("state.maxBytes"))
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
