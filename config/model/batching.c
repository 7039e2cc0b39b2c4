/* config/model/batching.c - reads the blocks sequence_batching and dynamic_batching of a model's
 * YAML. Any thread.
 *
 * Names, defaults and messages are those that users of Triton know, since Triton's configurations
 * are often used here unchanged. Keys are found in snake_case and in camelCase, because protobuf
 * writes its JSON in the latter. A key that is not known is an error and not a warning: a misspelt
 * setting of a scheduler would silently change the order or the latency of requests.
 *
 * Reading has two parts. cn_batching_parse reads the block into io->batching. cn_batching_apply
 * then changes options of the model that follow from it, but only those that the YAML does not set:
 * sequences are switched on, a START is required, the batch size becomes that of the tensors, and
 * the two settings of the idle time (max_sequence_idle_microseconds and our own) become the
 * same. */
#include "config/model/batching_priv.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/memory/mem.h"

#define IDLE_DEFAULT_US 1000000
#define US_MAX INT64_C(3600000000000) /* 1000 h; sums of times then cannot overflow */

static const char *const sequence_keys[] = {"sequence_batching", "sequenceBatching"};
static const char *const dynamic_keys[] = {"dynamic_batching", "dynamicBatching"};

int
cn_batching_refuse(const struct cn_batching_reader *parse, const struct cn_yaml *at,
                   const char *what, const char *expected)
{
    return cn_yaml_refuse(parse->name, at, what, expected, parse->err);
}

int
cn_batching_invalid(const struct cn_batching_reader *parse, const struct cn_yaml *at,
                    const char *fmt, ...)
{
    char text[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return cn_fail(parse->err, CN_E_CONFIG, "%s:%u:%u: %s for %s", parse->name, at->line,
                   at->column, text, parse->model);
}

/* Is `key` this snake_case key, or its form in camelCase? */
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

const struct cn_yaml *
cn_batching_get(const struct cn_yaml *map, const char *snake)
{
    for (uint32_t i = 0; map && map->kind == CN_YAML_MAP && i < map->n_items; i++)
        if (same_key(map->items[i]->key, snake))
            return map->items[i];
    return NULL;
}

int
cn_batching_check_keys(const struct cn_batching_reader *parse, const struct cn_yaml *map,
                       const char *what, const char *const *known)
{
    char shown[CN_YAML_SHOWN_MAX];

    if (map->kind == CN_YAML_NULL)
        return 0;
    if (map->kind != CN_YAML_MAP)
        return cn_batching_refuse(parse, map, what, "a map of settings");
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

/* Reads an integer from 0 to `max`; a key that is not there leaves *out as it is. */
static int
read_uint(const struct cn_batching_reader *parse, const struct cn_yaml *map, const char *key,
          int64_t max, uint64_t *out)
{
    const struct cn_yaml *value = cn_batching_get(map, key);
    char expected[80];
    int64_t integer;

    if (!value)
        return 0;
    if (!cn_yaml_take_integer(value, &integer) || integer < 0 || integer > max) {
        snprintf(expected, sizeof(expected), "an integer from 0 to %" PRId64, max);
        return cn_batching_refuse(parse, value, key, expected);
    }
    *out = (uint64_t)integer;
    return 0;
}

static int
read_u32(const struct cn_batching_reader *parse, const struct cn_yaml *map, const char *key,
         int64_t max, uint32_t *out)
{
    uint64_t wide = *out;
    int rc = read_uint(parse, map, key, max, &wide);

    *out = (uint32_t)wide;
    return rc;
}

static int
read_bool(const struct cn_batching_reader *parse, const struct cn_yaml *map, const char *key,
          bool *out)
{
    const struct cn_yaml *value = cn_batching_get(map, key);

    if (!value)
        return 0;
    if (value->kind != CN_YAML_BOOL)
        return cn_batching_refuse(parse, value, key, "true or false");
    *out = value->boolean;
    return 0;
}

/* --- sizes and times --- */

/* The sizes may come in any order; they are inserted so that the list is ascending. */
static int
read_preferred(const struct cn_batching_reader *parse, const struct cn_yaml *map, uint32_t max_rows)
{
    const struct cn_yaml *list = cn_batching_get(map, "preferred_batch_size");
    struct cn_batching *batching = parse->batching;

    if (!list)
        list = cn_batching_get(map, "candidate_batch_size");
    if (!list)
        return 0;
    if (list->kind != CN_YAML_LIST || list->n_items > CN_PREFERRED_MAX)
        return cn_batching_refuse(parse, list, "preferred_batch_size", "a list of up to 64 sizes");
    for (uint32_t i = 0; i < list->n_items; i++) {
        const struct cn_yaml *size = list->items[i];
        uint32_t at = batching->n_preferred, value = (uint32_t)size->integer;

        if (size->kind != CN_YAML_INT || size->integer < 1)
            return cn_batching_refuse(parse, size, "preferred_batch_size", "sizes from 1");
        if (size->integer > max_rows)
            return cn_batching_invalid(
                parse, size, "%s batching preferred batch size must be <= max batch size",
                batching->kind == CN_BATCHING_DYNAMIC ? "dynamic" : "sequence");
        for (; at > 0 && batching->preferred[at - 1] > value; at--)
            batching->preferred[at] = batching->preferred[at - 1];
        batching->preferred[at] = value;
        batching->n_preferred++;
    }
    return 0;
}

static int
read_delay(const struct cn_batching_reader *parse, const struct cn_yaml *map)
{
    return read_uint(parse, map, "max_queue_delay_microseconds", US_MAX,
                     &parse->batching->delay_us);
}

/* --- sequence_batching --- */

static int
read_oldest(const struct cn_batching_reader *parse, const struct cn_yaml *map, uint32_t max_rows)
{
    static const char *const known[] = {"max_candidate_sequences", "preferred_batch_size",
                                        "candidate_batch_size",    "max_queue_delay_microseconds",
                                        "preserve_ordering",       NULL};
    struct cn_batching *batching = parse->batching;
    int rc = cn_batching_check_keys(parse, map, "oldest", known);

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

/* A share of 0, the default, means that a batch does not wait for slots. */
static int
read_direct(const struct cn_batching_reader *parse, const struct cn_yaml *map)
{
    static const char *const known[] = {"minimum_slot_utilization", "max_queue_delay_microseconds",
                                        NULL};
    const struct cn_yaml *share = cn_batching_get(map, "minimum_slot_utilization");
    int rc = cn_batching_check_keys(parse, map, "direct", known);

    parse->batching->kind = CN_BATCHING_DIRECT;
    if (!rc && share &&
        ((share->kind != CN_YAML_INT && share->kind != CN_YAML_FLOAT) ||
         !(share->number >= 0 && share->number <= 1))) /* .nan is refused, too */
        rc = cn_batching_refuse(parse, share, "minimum_slot_utilization", "a number from 0 to 1");
    if (!rc && share)
        parse->batching->min_utilization = (float)share->number;
    return rc ? rc : read_delay(parse, map);
}

/* What happens to requests that wait when their sequence expires: complete (the default), reject,
 * or describe, which also logs the sequence. */
static int
read_timeout_action(const struct cn_batching_reader *parse, const struct cn_yaml *block)
{
    const struct cn_yaml *word = cn_batching_get(block, "timeout_action");

    if (!word || cn_str_eq(word->text, CN_STR("complete")))
        return 0;
    parse->batching->describe_expired = cn_str_eq(word->text, CN_STR("describe"));
    parse->batching->reject_expired =
        parse->batching->describe_expired || cn_str_eq(word->text, CN_STR("reject"));
    return parse->batching->reject_expired
               ? 0
               : cn_batching_refuse(parse, word, "timeout_action", "reject, complete or describe");
}

/* Without direct or oldest the strategy is direct, with its defaults. */
static int
read_sequence(const struct cn_batching_reader *parse, const struct cn_yaml *block,
              uint32_t max_rows)
{
    static const char *const known[] = {"max_sequence_idle_microseconds",
                                        "control_input",
                                        "state",
                                        "direct",
                                        "oldest",
                                        "iterative_sequence",
                                        "timeout_action",
                                        NULL};
    const struct cn_yaml *direct = cn_batching_get(block, "direct"),
                         *oldest = cn_batching_get(block, "oldest");
    struct cn_batching *batching = parse->batching;
    bool iterative = false;
    int rc = cn_batching_check_keys(parse, block, "sequence_batching", known);

    if (!rc)
        rc = read_uint(parse, block, "max_sequence_idle_microseconds", US_MAX, &batching->idle_us);
    if (!rc)
        rc = cn_batching_read_controls(parse, block);
    if (!rc)
        rc = read_timeout_action(parse, block);
    if (!rc)
        rc = read_bool(parse, block, "iterative_sequence", &iterative);
    if (!rc && iterative)
        rc = cn_batching_refuse(
            parse, cn_batching_get(block, "iterative_sequence"), "iterative_sequence",
            "false (a handler that yields may already have any number of turns)");
    if (!rc && direct && oldest)
        rc = cn_batching_refuse(parse, oldest, "oldest", "one strategy, direct or oldest");
    if (!rc)
        rc = oldest ? read_oldest(parse, oldest, max_rows)
                    : read_direct(parse, direct ? direct : &(struct cn_yaml){.kind = CN_YAML_NULL});
    return rc;
}

/* --- dynamic_batching --- */

/* Changes only the fields that the map has; the caller has filled in the defaults. */
static int
read_policy(const struct cn_batching_reader *parse, const struct cn_yaml *map,
            struct cn_queue_policy *out)
{
    static const char *const known[] = {"timeout_action", "default_timeout_microseconds",
                                        "allow_timeout_override", "max_queue_size", NULL};
    const struct cn_yaml *action = cn_batching_get(map, "timeout_action");
    int rc = cn_batching_check_keys(parse, map, "a queue policy", known);

    if (!rc && action && cn_str_eq(action->text, CN_STR("DELAY")))
        out->delay = true;
    else if (!rc && action && !cn_str_eq(action->text, CN_STR("REJECT")))
        rc = cn_batching_refuse(parse, action, "timeout_action", "REJECT or DELAY");
    if (!rc)
        rc = read_uint(parse, map, "default_timeout_microseconds", US_MAX, &out->timeout_us);
    if (!rc)
        rc = read_bool(parse, map, "allow_timeout_override", &out->allow_override);
    if (!rc)
        rc = read_u32(parse, map, "max_queue_size", UINT32_MAX, &out->max_queued);
    return rc;
}

/* Reads priority_queue_policy, a map whose keys are priority levels and whose values are
 * policies. */
static int
read_level_policies(const struct cn_batching_reader *parse, const struct cn_yaml *map)
{
    struct cn_batching *batching = parse->batching;
    int rc = 0;

    if (!map)
        return 0;
    if (map->kind != CN_YAML_MAP)
        return cn_batching_refuse(parse, map, "priority_queue_policy",
                                  "a map from levels to policies");
    for (uint32_t i = 0; !rc && i < map->n_items; i++) {
        const struct cn_yaml *item = map->items[i];
        unsigned level = 0;
        size_t at = 0;

        while (at < item->key.len && at < 3 && item->key.ptr[at] >= '0' && item->key.ptr[at] <= '9')
            level = level * 10 + (unsigned)(item->key.ptr[at++] - '0');
        if (at != item->key.len || level < 1 || level > batching->priority_levels)
            return cn_batching_refuse(parse, item, "priority_queue_policy",
                                      "keys from 1 to priority_levels");
        batching->policies[level] = (struct cn_queue_policy){.delay = false};
        rc = read_policy(parse, item, &batching->policies[level]);
    }
    return rc;
}

/* Each level has the default policy unless priority_queue_policy names it. */
static int
read_levels(const struct cn_batching_reader *parse, const struct cn_yaml *block)
{
    const struct cn_yaml *policy = cn_batching_get(block, "default_queue_policy");
    struct cn_batching *batching = parse->batching;
    int rc = read_u32(parse, block, "priority_levels", CN_PRIORITY_LEVELS_MAX,
                      &batching->priority_levels);

    if (!rc)
        rc = read_u32(parse, block, "default_priority_level", CN_PRIORITY_LEVELS_MAX,
                      &batching->default_level);
    if (!rc && (batching->default_level > batching->priority_levels ||
                (batching->priority_levels && !batching->default_level)))
        rc = cn_batching_refuse(parse, block, "default_priority_level",
                                "a level from 1 to priority_levels");
    if (!rc && policy)
        rc = read_policy(parse, policy, &batching->policies[0]);
    for (uint32_t i = 1; !rc && i <= batching->priority_levels; i++)
        batching->policies[i] = batching->policies[0];
    return rc ? rc : read_level_policies(parse, cn_batching_get(block, "priority_queue_policy"));
}

static int
read_dynamic(const struct cn_batching_reader *parse, const struct cn_yaml *block, uint32_t max_rows)
{
    static const char *const known[] = {
        "preferred_batch_size", "candidate_batch_size",  "max_queue_delay_microseconds",
        "preserve_ordering",    "priority_levels",       "default_priority_level",
        "default_queue_policy", "priority_queue_policy", NULL};
    int rc = cn_batching_check_keys(parse, block, "dynamic_batching", known);

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

/* Returns the block, which has two names. `sequenceBatching: true` is not a block but the option of
 * that name. */
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

/* Returns the size of the largest batch that a handler gets. Preferred sizes must not exceed it. */
static uint32_t
rows_of(const struct cn_yaml *root, const struct cn_model_io *io)
{
    const struct cn_yaml *size = cn_batching_get(root, "batch_size");

    if (size && size->kind == CN_YAML_INT && size->integer > 0 && size->integer <= 65536)
        return (uint32_t)size->integer;
    return io->max_batch_size ? io->max_batch_size : 1;
}

bool
cn_batching_owns(const struct cn_yaml *value)
{
    if (cn_str_eq(value->key, cn_str_from(sequence_keys[1])))
        return value->kind == CN_YAML_MAP; /* true or false: the option, not a block */
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
    struct cn_batching_reader parse = {
        .name = cn_yaml_name(doc), .model = model, .io = io, .err = err};
    const struct cn_yaml *block = sequence ? sequence : dynamic;
    uint32_t max_rows;

    if (!block)
        return 0;
    if (!io)
        return cn_batching_invalid(
            &parse, block,
            "sequence_batching and dynamic_batching need declared inputs and outputs, "
            "which are missing");
    if (dynamic && (sequence || is_true(root, sequence_keys[0]) || is_true(root, sequence_keys[1])))
        return cn_batching_invalid(&parse, dynamic,
                                   "only one of sequence_batching and dynamic_batching");
    parse.batching = cn_arena_alloc(&io->arena, sizeof(*parse.batching));
    *parse.batching = (struct cn_batching){.n_controls = 0};
    max_rows = rows_of(root, io);
    io->batching = parse.batching;
    if (dynamic)
        return read_dynamic(&parse, dynamic, max_rows);
    if (block->kind != CN_YAML_MAP && block->kind != CN_YAML_NULL)
        return cn_batching_refuse(&parse, block, "sequence_batching",
                                  "a map of settings, or a boolean");
    return read_sequence(&parse, sequence, max_rows);
}

uint32_t
cn_batching_shown_preferred(uint32_t rows, uint32_t max_batch_size)
{
    return rows < max_batch_size ? rows : max_batch_size;
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
    if (!cn_batching_get(root, "batch_size") && config->batch_size == 1)
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
