/* config/batching.c - the blocks sequence_batching and dynamic_batching, out of a model's YAML. Any
 * thread. Messages are those that users of such configurations know. */
#include "config/batching.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"

#define IDLE_DEFAULT_US 1000000
#define US_MAX INT64_C(3600000000000) /* 1000 h: sums of times stay far from overflow */

static const char *const sequence_keys[] = {"sequence_batching", "sequenceBatching"};
static const char *const dynamic_keys[] = {"dynamic_batching", "dynamicBatching"};

struct parse {
    const char *name, *model; /* of the document; of the model */
    struct cn_model_io *io;
    struct cn_batching *batching;
    struct cn_error *err;
};

static const char *const control_words[] = {"CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_END",
                                            "CONTROL_SEQUENCE_READY", "CONTROL_SEQUENCE_CORRID"};

const char *
cn_control_word(enum cn_control_kind kind)
{
    return control_words[kind];
}

const struct cn_control *
cn_batching_control(const struct cn_batching *batching, enum cn_control_kind kind)
{
    for (uint32_t i = 0; batching && i < batching->n_controls; i++)
        if (batching->controls[i].kind == kind)
            return &batching->controls[i];
    return NULL;
}

static int
refuse(const struct parse *parse, const struct cn_yaml *at, const char *what, const char *expected)
{
    char shown[CN_YAML_SHOWN_MAX];

    return cn_fail(parse->err, CN_E_CONFIG, "%s:%u:%u: %s: expected %s, found %s %s", parse->name,
                   at->line, at->column, what, expected, cn_yaml_kind_word(at->kind),
                   cn_yaml_shown(at->text, shown));
}

/* One of the sentences that end with the model's name. */
static int __attribute__((format(printf, 3, 4)))
invalid(const struct parse *parse, const struct cn_yaml *at, const char *fmt, ...)
{
    char text[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return cn_fail(parse->err, CN_E_CONFIG, "%s:%u:%u: %s for %s", parse->name, at->line,
                   at->column, text, parse->model);
}

/* Is `key`, as written, this snake_case key or its camelCase? */
static bool
same_key(struct cn_str key, const char *snake)
{
    size_t at = 0;

    if (cn_str_eq(key, cn_str_from(snake)))
        return true;
    for (; *snake; snake++, at++) {
        char c = *snake;

        if (c == '_' && snake[1]) {
            c = *++snake;
            c = c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
        }
        if (at >= key.len || key.ptr[at] != c)
            return false;
    }
    return at == key.len;
}

static const struct cn_yaml *
get(const struct cn_yaml *map, const char *snake)
{
    for (uint32_t i = 0; map && map->kind == CN_YAML_MAP && i < map->n_items; i++)
        if (same_key(map->items[i]->key, snake))
            return map->items[i];
    return NULL;
}

/* `known` ends with NULL. A key that is not meant would silently change nothing. */
static int
check_keys(const struct parse *parse, const struct cn_yaml *map, const char *what,
           const char *const *known)
{
    char shown[CN_YAML_SHOWN_MAX];

    if (map->kind == CN_YAML_NULL)
        return 0;
    if (map->kind != CN_YAML_MAP)
        return refuse(parse, map, what, "a map of settings");
    for (uint32_t i = 0; i < map->n_items; i++) {
        size_t k = 0;

        while (known[k] && !same_key(map->items[i]->key, known[k]))
            k++;
        if (!known[k])
            return cn_fail(parse->err, CN_E_CONFIG, "%s:%u:%u: %s has no setting %s", parse->name,
                           map->items[i]->key_line, map->items[i]->key_column, what,
                           cn_yaml_shown(map->items[i]->key, shown));
    }
    return 0;
}

static int
read_uint(const struct parse *parse, const struct cn_yaml *map, const char *key, int64_t max,
          uint64_t *out)
{
    const struct cn_yaml *value = get(map, key);
    char expected[80];

    if (!value)
        return 0;
    if (value->kind != CN_YAML_INT || value->integer < 0 || value->integer > max) {
        snprintf(expected, sizeof(expected), "an integer from 0 to %" PRId64, max);
        return refuse(parse, value, key, expected);
    }
    *out = (uint64_t)value->integer;
    return 0;
}

static int
read_u32(const struct parse *parse, const struct cn_yaml *map, const char *key, int64_t max,
         uint32_t *out)
{
    uint64_t wide = *out;
    int rc = read_uint(parse, map, key, max, &wide);

    *out = (uint32_t)wide;
    return rc;
}

static int
read_bool(const struct parse *parse, const struct cn_yaml *map, const char *key, bool *out)
{
    const struct cn_yaml *value = get(map, key);

    if (!value)
        return 0;
    if (value->kind != CN_YAML_BOOL)
        return refuse(parse, value, key, "true or false");
    *out = value->boolean;
    return 0;
}

/* --- controls --- */

static int
set_boolean(const struct parse *parse, const struct cn_yaml *value, enum cn_datatype type,
            struct cn_control *control)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct cn_yaml *item = value->items[i];
        const int32_t integer = (int32_t)item->integer;
        const float number = (float)item->number;

        if (type == CN_DATATYPE_BOOL    ? item->kind != CN_YAML_BOOL
            : type == CN_DATATYPE_INT32 ? item->kind != CN_YAML_INT || item->integer != integer
                                        : item->kind != CN_YAML_INT && item->kind != CN_YAML_FLOAT)
            return refuse(parse, item, "false and true of a control", cn_datatype_word(type));
        if (type == CN_DATATYPE_BOOL)
            control->bytes[i][0] = item->boolean;
        else
            memcpy(control->bytes[i], type == CN_DATATYPE_INT32 ? (const void *)&integer : &number,
                   4);
    }
    control->type = type;
    return 0;
}

static int
read_boolean(const struct parse *parse, const struct cn_yaml *item, struct cn_control *control)
{
    static const struct {
        const char *key;
        enum cn_datatype type;
    } forms[] = {{"int32_false_true", CN_DATATYPE_INT32},
                 {"fp32_false_true", CN_DATATYPE_FP32},
                 {"bool_false_true", CN_DATATYPE_BOOL}};
    const char *word = cn_control_word(control->kind);
    int rc = 0;

    for (size_t i = 0; !rc && i < 3; i++) {
        const struct cn_yaml *value = get(item, forms[i].key);

        if (!value)
            continue;
        if (control->type != CN_DATATYPE_NONE)
            return invalid(parse, value,
                           "sequence batching must specify only one of 'int32_false_true', "
                           "'fp32_false_true' and 'bool_false_true' for %s",
                           word);
        if (value->kind != CN_YAML_LIST || value->n_items != 2)
            return invalid(parse, value,
                           "sequence batching control '%s' must have exactly 2 entries for %s",
                           forms[i].key, word);
        rc = set_boolean(parse, value, forms[i].type, control);
    }
    if (!rc && control->type == CN_DATATYPE_NONE)
        rc = invalid(parse, item,
                     "sequence batching must specify either 'int32_false_true', 'fp32_false_true' "
                     "or 'bool_false_true' for %s",
                     word);
    return rc;
}

static int
read_corrid(const struct parse *parse, const struct cn_yaml *item, struct cn_control *control)
{
    const struct cn_yaml *type = get(item, "data_type");

    control->type =
        type && type->kind == CN_YAML_STRING ? cn_datatype_parse(type->text) : CN_DATATYPE_NONE;
    switch (control->type) {
    case CN_DATATYPE_UINT64:
    case CN_DATATYPE_INT64:
    case CN_DATATYPE_UINT32:
    case CN_DATATYPE_INT32:
    case CN_DATATYPE_BYTES:
        return 0;
    default:
        return cn_fail(parse->err, CN_E_CONFIG,
                       "%s:%u:%u: unexpected data type for control CONTROL_SEQUENCE_CORRID for %s. "
                       "Allowed data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 "
                       "and TYPE_STRING",
                       parse->name, item->line, item->column, parse->model);
    }
}

static int
read_kind(const struct parse *parse, const struct cn_yaml *item, struct cn_control *control)
{
    const struct cn_yaml *kind = get(item, "kind");

    for (unsigned i = 0; kind && i < 4; i++) {
        if (!cn_str_eq(kind->text, cn_str_from(control_words[i])))
            continue;
        control->kind = (enum cn_control_kind)i;
        if (cn_batching_control(parse->batching, control->kind))
            return invalid(parse, item, "sequence batching specifies multiple %s tensors",
                           control_words[i]);
        return 0;
    }
    return refuse(parse, kind ? kind : item, "kind",
                  "CONTROL_SEQUENCE_START, CONTROL_SEQUENCE_END, CONTROL_SEQUENCE_READY or "
                  "CONTROL_SEQUENCE_CORRID");
}

static int
read_control(const struct parse *parse, const struct cn_yaml *item, struct cn_control *control)
{
    static const char *const known[] = {"name", "control", NULL};
    static const char *const in_known[] = {
        "kind", "int32_false_true", "fp32_false_true", "bool_false_true", "data_type", NULL};
    const struct cn_yaml *name = get(item, "name"), *list = get(item, "control");
    char shown[CN_YAML_SHOWN_MAX];
    int rc = check_keys(parse, item, "control_input", known);

    if (rc)
        return rc;
    if (!name || name->kind != CN_YAML_STRING || name->text.len == 0)
        return invalid(parse, item, "sequence batching control tensor must have a name");
    if (!list || list->kind != CN_YAML_LIST || list->n_items == 0)
        return refuse(parse, list ? list : item, "control", "a list with one control");
    cn_yaml_shown(name->text, shown);
    if (list->n_items > 1)
        return invalid(parse, list,
                       "sequence batching control tensor '%s' is specified for multiple control "
                       "kinds",
                       shown);
    if (cn_model_io_input(parse->io, name->text))
        return invalid(parse, item, "sequence batching control tensor '%s' is an input too", shown);
    for (uint32_t i = 0; i < parse->batching->n_controls; i++)
        if (cn_str_eq(parse->batching->controls[i].name, name->text))
            return invalid(parse, item,
                           "sequence batching control tensor '%s' is specified for multiple "
                           "control kinds",
                           shown);
    control->name = (struct cn_str){
        cn_arena_strndup(&parse->io->arena, name->text.ptr, name->text.len), name->text.len};
    rc = check_keys(parse, list->items[0], "control", in_known);
    if (!rc)
        rc = read_kind(parse, list->items[0], control);
    if (rc)
        return rc;
    return control->kind == CN_CONTROL_SEQUENCE_CORRID
               ? read_corrid(parse, list->items[0], control)
               : read_boolean(parse, list->items[0], control);
}

/* At most one of each kind. */
static int
read_controls(const struct parse *parse, const struct cn_yaml *block)
{
    const struct cn_yaml *list = get(block, "control_input");
    struct cn_batching *batching = parse->batching;
    int rc;

    if (!list)
        return 0;
    if (list->kind != CN_YAML_LIST)
        return refuse(parse, list, "control_input", "a list of controls");
    batching->controls = cn_arena_alloc(&parse->io->arena, 5 * sizeof(*batching->controls));
    for (uint32_t i = 0; i < list->n_items; i++) {
        struct cn_control *control = &batching->controls[batching->n_controls];

        *control = (struct cn_control){.type = CN_DATATYPE_NONE};
        if ((rc = read_control(parse, list->items[i], control)))
            return rc;
        batching->n_controls++;
    }
    return 0;
}

/* --- sizes and times --- */

static int
read_preferred(const struct parse *parse, const struct cn_yaml *map, uint32_t max_rows)
{
    const struct cn_yaml *list = get(map, "preferred_batch_size");
    struct cn_batching *batching = parse->batching;

    if (!list)
        list = get(map, "candidate_batch_size");
    if (!list)
        return 0;
    if (list->kind != CN_YAML_LIST || list->n_items > CN_PREFERRED_MAX)
        return refuse(parse, list, "preferred_batch_size", "a list of up to 64 sizes");
    for (uint32_t i = 0; i < list->n_items; i++) {
        const struct cn_yaml *size = list->items[i];
        uint32_t at = batching->n_preferred, value = (uint32_t)size->integer;

        if (size->kind != CN_YAML_INT || size->integer < 1)
            return refuse(parse, size, "preferred_batch_size", "sizes from 1");
        if (size->integer > max_rows)
            return invalid(parse, size,
                           "%s batching preferred batch size must be <= max batch size",
                           batching->kind == CN_BATCHING_DYNAMIC ? "dynamic" : "sequence");
        for (; at > 0 && batching->preferred[at - 1] > value; at--)
            batching->preferred[at] = batching->preferred[at - 1];
        batching->preferred[at] = value;
        batching->n_preferred++;
    }
    return 0;
}

static int
read_delay(const struct parse *parse, const struct cn_yaml *map)
{
    return read_uint(parse, map, "max_queue_delay_microseconds", US_MAX,
                     &parse->batching->delay_us);
}

/* --- sequence_batching --- */

static int
read_oldest(const struct parse *parse, const struct cn_yaml *map, uint32_t max_rows)
{
    static const char *const known[] = {"max_candidate_sequences", "preferred_batch_size",
                                        "candidate_batch_size",    "max_queue_delay_microseconds",
                                        "preserve_ordering",       NULL};
    struct cn_batching *batching = parse->batching;
    int rc = check_keys(parse, map, "oldest", known);

    batching->kind = CN_BATCHING_OLDEST;
    if (!rc)
        rc = read_u32(parse, map, "max_candidate_sequences", INT32_MAX, &batching->max_candidates);
    if (!rc)
        rc = read_preferred(parse, map, max_rows);
    if (!rc)
        rc = read_delay(parse, map);
    if (!rc)
        rc = read_bool(parse, map, "preserve_ordering", &batching->preserve_ordering);
    return rc;
}

static int
read_direct(const struct parse *parse, const struct cn_yaml *map)
{
    static const char *const known[] = {"minimum_slot_utilization", "max_queue_delay_microseconds",
                                        NULL};
    const struct cn_yaml *share = get(map, "minimum_slot_utilization");
    int rc = check_keys(parse, map, "direct", known);

    parse->batching->kind = CN_BATCHING_DIRECT;
    if (!rc && share &&
        ((share->kind != CN_YAML_INT && share->kind != CN_YAML_FLOAT) || share->number < 0 ||
         share->number > 1))
        rc = refuse(parse, share, "minimum_slot_utilization", "a number from 0 to 1");
    if (!rc && share)
        parse->batching->min_utilization = (float)share->number;
    return rc ? rc : read_delay(parse, map);
}

static int
read_timeout_action(const struct parse *parse, const struct cn_yaml *block)
{
    const struct cn_yaml *word = get(block, "timeout_action");

    if (!word || cn_str_eq(word->text, CN_STR("complete")))
        return 0;
    parse->batching->describe_expired = cn_str_eq(word->text, CN_STR("describe"));
    parse->batching->reject_expired =
        parse->batching->describe_expired || cn_str_eq(word->text, CN_STR("reject"));
    return parse->batching->reject_expired
               ? 0
               : refuse(parse, word, "timeout_action", "reject, complete or describe");
}

static int
read_sequence(const struct parse *parse, const struct cn_yaml *block, uint32_t max_rows)
{
    static const char *const known[] = {"max_sequence_idle_microseconds",
                                        "control_input",
                                        "state",
                                        "direct",
                                        "oldest",
                                        "iterative_sequence",
                                        "timeout_action",
                                        NULL};
    const struct cn_yaml *direct = get(block, "direct"), *oldest = get(block, "oldest");
    struct cn_batching *batching = parse->batching;
    bool iterative = false;
    int rc = check_keys(parse, block, "sequence_batching", known);

    if (!rc)
        rc = read_uint(parse, block, "max_sequence_idle_microseconds", US_MAX, &batching->idle_us);
    if (!rc)
        rc = read_controls(parse, block);
    if (!rc)
        rc = read_timeout_action(parse, block);
    if (!rc)
        rc = read_bool(parse, block, "iterative_sequence", &iterative);
    if (!rc && iterative)
        rc = refuse(parse, get(block, "iterative_sequence"), "iterative_sequence",
                    "false: a handler that yields has as many turns as it likes");
    if (!rc && direct && oldest)
        rc = refuse(parse, oldest, "oldest", "one strategy, direct or oldest");
    if (!rc)
        rc = oldest ? read_oldest(parse, oldest, max_rows)
                    : read_direct(parse, direct ? direct : &(struct cn_yaml){.kind = CN_YAML_NULL});
    return rc;
}

/* --- dynamic_batching --- */

static int
read_policy(const struct parse *parse, const struct cn_yaml *map, struct cn_queue_policy *out)
{
    static const char *const known[] = {"timeout_action", "default_timeout_microseconds",
                                        "allow_timeout_override", "max_queue_size", NULL};
    const struct cn_yaml *action = get(map, "timeout_action");
    int rc = check_keys(parse, map, "a queue policy", known);

    if (!rc && action && cn_str_eq(action->text, CN_STR("DELAY")))
        out->delay = true;
    else if (!rc && action && !cn_str_eq(action->text, CN_STR("REJECT")))
        rc = refuse(parse, action, "timeout_action", "REJECT or DELAY");
    if (!rc)
        rc = read_uint(parse, map, "default_timeout_microseconds", US_MAX, &out->timeout_us);
    if (!rc)
        rc = read_bool(parse, map, "allow_timeout_override", &out->allow_override);
    if (!rc)
        rc = read_u32(parse, map, "max_queue_size", UINT32_MAX, &out->max_queued);
    return rc;
}

/* A map from level to policy; the keys are numbers. */
static int
read_level_policies(const struct parse *parse, const struct cn_yaml *map)
{
    struct cn_batching *batching = parse->batching;
    int rc = 0;

    if (!map)
        return 0;
    if (map->kind != CN_YAML_MAP)
        return refuse(parse, map, "priority_queue_policy", "a map from levels to policies");
    for (uint32_t i = 0; !rc && i < map->n_items; i++) {
        const struct cn_yaml *item = map->items[i];
        unsigned level = 0;
        size_t at = 0;

        while (at < item->key.len && at < 3 && item->key.ptr[at] >= '0' && item->key.ptr[at] <= '9')
            level = level * 10 + (unsigned)(item->key.ptr[at++] - '0');
        if (at != item->key.len || level < 1 || level > batching->priority_levels)
            return refuse(parse, item, "priority_queue_policy", "keys from 1 to priority_levels");
        batching->policies[level] = (struct cn_queue_policy){.delay = false};
        rc = read_policy(parse, item, &batching->policies[level]);
    }
    return rc;
}

static int
read_levels(const struct parse *parse, const struct cn_yaml *block)
{
    const struct cn_yaml *policy = get(block, "default_queue_policy");
    struct cn_batching *batching = parse->batching;
    int rc = read_u32(parse, block, "priority_levels", CN_PRIORITY_LEVELS_MAX,
                      &batching->priority_levels);

    if (!rc)
        rc = read_u32(parse, block, "default_priority_level", CN_PRIORITY_LEVELS_MAX,
                      &batching->default_level);
    if (!rc && (batching->default_level > batching->priority_levels ||
                (batching->priority_levels && !batching->default_level)))
        rc = refuse(parse, block, "default_priority_level", "a level from 1 to priority_levels");
    if (!rc && policy)
        rc = read_policy(parse, policy, &batching->policies[0]);
    for (uint32_t i = 1; !rc && i <= batching->priority_levels; i++)
        batching->policies[i] = batching->policies[0];
    return rc ? rc : read_level_policies(parse, get(block, "priority_queue_policy"));
}

static int
read_dynamic(const struct parse *parse, const struct cn_yaml *block, uint32_t max_rows)
{
    static const char *const known[] = {
        "preferred_batch_size", "candidate_batch_size",  "max_queue_delay_microseconds",
        "preserve_ordering",    "priority_levels",       "default_priority_level",
        "default_queue_policy", "priority_queue_policy", NULL};
    int rc = check_keys(parse, block, "dynamic_batching", known);

    parse->batching->kind = CN_BATCHING_DYNAMIC;
    if (!rc)
        rc = read_preferred(parse, block, max_rows);
    if (!rc)
        rc = read_delay(parse, block);
    if (!rc)
        rc = read_bool(parse, block, "preserve_ordering", &parse->batching->preserve_ordering);
    return rc ? rc : read_levels(parse, block);
}

/* --- the document --- */

static const struct cn_yaml *
get_block(const struct cn_yaml *root, const char *const keys[2])
{
    const struct cn_yaml *block = NULL;

    for (int i = 0; i < 2 && !block; i++)
        block = cn_yaml_get(root, keys[i]);
    return block && block->kind == CN_YAML_BOOL && keys == sequence_keys ? NULL : block;
}

static bool
is_true(const struct cn_yaml *root, const char *key)
{
    const struct cn_yaml *value = cn_yaml_get(root, key);

    return value && value->kind == CN_YAML_BOOL && value->boolean;
}

/* What preferred sizes are held against: the batch that a handler gets at most. */
static uint32_t
rows_of(const struct cn_yaml *root, const struct cn_model_io *io)
{
    const struct cn_yaml *size = get(root, "batch_size");

    if (size && size->kind == CN_YAML_INT && size->integer > 0 && size->integer <= 65536)
        return (uint32_t)size->integer;
    return io->max_batch_size ? io->max_batch_size : 1;
}

bool
cn_batching_owns(const struct cn_yaml *value)
{
    if (cn_str_eq(value->key, cn_str_from(sequence_keys[1])))
        return value->kind == CN_YAML_MAP; /* else it is the plain option */
    return cn_str_eq(value->key, cn_str_from(sequence_keys[0])) ||
           cn_str_eq(value->key, cn_str_from(dynamic_keys[0])) ||
           cn_str_eq(value->key, cn_str_from(dynamic_keys[1]));
}

int
cn_batching_parse(const struct cn_yaml_doc *doc, const char *model, struct cn_model_io *io,
                  struct cn_error *err)
{
    const struct cn_yaml *root = cn_yaml_root(doc);
    const struct cn_yaml *sequence = get_block(root, sequence_keys);
    const struct cn_yaml *dynamic = get_block(root, dynamic_keys);
    struct parse parse = {.name = cn_yaml_name(doc), .model = model, .io = io, .err = err};
    const struct cn_yaml *block = sequence ? sequence : dynamic;
    uint32_t max_rows;

    if (!block)
        return 0;
    if (!io)
        return invalid(&parse, block,
                       "sequence_batching and dynamic_batching need declared inputs and outputs, "
                       "which are missing");
    if (dynamic && (sequence || is_true(root, sequence_keys[0]) || is_true(root, sequence_keys[1])))
        return invalid(&parse, dynamic, "one of sequence_batching and dynamic_batching can be set");
    parse.batching = cn_arena_alloc(&io->arena, sizeof(*parse.batching));
    *parse.batching = (struct cn_batching){.n_controls = 0};
    max_rows = rows_of(root, io);
    io->batching = parse.batching;
    if (dynamic)
        return read_dynamic(&parse, dynamic, max_rows);
    if (block->kind != CN_YAML_MAP && block->kind != CN_YAML_NULL)
        return refuse(&parse, block, "sequence_batching", "a map of settings, or a boolean");
    return read_sequence(&parse, sequence, max_rows);
}

void
cn_batching_apply(const struct cn_yaml_doc *doc, const struct cn_model_io *io,
                  struct cn_model_config *config)
{
    const struct cn_yaml *root = cn_yaml_root(doc), *sequence = cn_yaml_get(root, "sequence");
    const struct cn_yaml *plain = cn_yaml_get(root, sequence_keys[0]);
    struct cn_batching *batching = io ? io->batching : NULL;

    if (plain && plain->kind == CN_YAML_BOOL)
        config->sequence_batching = plain->boolean;
    if (!batching)
        return;
    if (!get(root, "batch_size") && config->batch_size == 1)
        config->batch_size = rows_of(root, io);
    if (batching->kind == CN_BATCHING_DYNAMIC)
        return;
    config->sequence_batching = true;
    if (!sequence || !cn_yaml_get(sequence, "implicitStart"))
        config->sequence_implicit_start = false;
    if (batching->idle_us)
        config->sequence_max_idle_ms = (batching->idle_us + 999) / 1000;
    else if (config->sequence_max_idle_ms == 0)
        config->sequence_max_idle_ms = IDLE_DEFAULT_US / 1000;
    batching->idle_us = config->sequence_max_idle_ms * 1000;
}
