/* config/model/overlay.c - lays a configuration that a client sends over the archive's YAML. Any
 * thread.
 *
 * The result is a text, because everything that reads a model's YAML already works on documents:
 * write_both writes each top-level setting of the archive that the client does not set, and then
 * the client's. The text is parsed again to check it.
 *
 * Three settings are difficult, because a client that sends back what it was shown says something
 * about them without meaning to:
 * - the number of workers: it is shown as instance_group, and stays as in the archive if the number
 *   is unchanged (settle_workers),
 * - batching: a model without a block is shown with the block that describes what it does; if the
 *   same block comes back, the archive's setting stays (is_shown), which takes a second pass, since
 *   it needs the parsed result of the first,
 * - state tensors: the protocol cannot say everything about them; if they look the same, the
 *   archive's declaration stays (cn_model_state_compare).
 *
 * If the combined document is wrong, the position in it would mean nothing to anybody. So the
 * client's document is parsed alone, and if it has the same error, its position is reported
 * (blame). */
#include "config/model/overlay.h"

#include <stdio.h>
#include <string.h>

#include "config/model/batching_priv.h"
#include "config/model/instances.h"
#include "config/model/model_io_priv.h"
#include "config/yaml/yaml_write.h"

#define FIELD_MAX 128 /* the longest path in bytes; longer ones are in no table */

struct overlay {
    const struct cn_yaml_doc *above_doc;
    const struct cn_yaml *below, *above;             /* the roots of the two documents */
    const struct cn_yaml *below_block, *above_block; /* see block_of() */
    const char *model;
    const struct cn_model_config *base;
    enum cn_state_overlay state;
    bool batching_stays, workers_stay; /* unchanged since they were shown */
    uint32_t batch_size;               /* 0: as the documents say */
};

static const struct cn_yaml nothing = {.kind = CN_YAML_MAP};

/* --- names --- */

static char
lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Compares in either spelling: batch_size is batchSize. */
static bool
same_word(struct cn_str a, struct cn_str b)
{
    size_t i = 0, k = 0;

    for (;; i++, k++) {
        while (i < a.len && a.ptr[i] == '_')
            i++;
        while (k < b.len && b.ptr[k] == '_')
            k++;
        if (i == a.len || k == b.len)
            return i == a.len && k == b.len;
        if (lower(a.ptr[i]) != lower(b.ptr[k]))
            return false;
    }
}

static bool
is_word(struct cn_str key, const char *word)
{
    return same_word(key, cn_str_from(word));
}

/* The names of one setting. sequenceBatching and dynamicBatching exclude each other, and the bounds
 * of the number of workers belong together. */
static const char *const groups[][3] = {
    {"inputs", "input"},
    {"outputs", "output"},
    {"decoupled", "modelTransactionPolicy"},
    {"sequenceBatching", "dynamicBatching"},
    {"minWorkers", "maxWorkers", "instanceGroup"},
};
#define N_GROUPS (sizeof(groups) / sizeof(groups[0]))

static size_t
group_of(struct cn_str key)
{
    for (size_t g = 0; g < N_GROUPS; g++)
        for (size_t i = 0; i < 3 && groups[g][i]; i++)
            if (is_word(key, groups[g][i]))
                return g;
    return N_GROUPS;
}

/* The first item of `root` that is the setting `key`, under any of its names. */
static const struct cn_yaml *
find(const struct cn_yaml *root, struct cn_str key)
{
    size_t group = group_of(key);

    for (uint32_t i = 0; i < root->n_items; i++) {
        struct cn_str other = root->items[i]->key;

        if (group < N_GROUPS ? group_of(other) == group : same_word(other, key))
            return root->items[i];
    }
    return NULL;
}

/* --- fields that are known, and say nothing --- */

static const struct {
    const char *path;
    enum cn_yaml_kind kind;
} fields[] = {
#define CN_TRITON_FIELD(path, kind) {path, CN_YAML_##kind},
#include "config/model/triton_fields.def"
#undef CN_TRITON_FIELD
};
#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))

static bool
is_silent(struct cn_str key)
{
    for (size_t i = 0; i < N_FIELDS; i++)
        if (is_word(key, fields[i].path))
            return true;
    return false;
}

static int
check_field(const struct overlay *overlay, const struct cn_yaml *value, const char *path,
            struct cn_error *err)
{
    for (size_t i = 0; i < N_FIELDS; i++)
        if (is_word(cn_str_from(path), fields[i].path) && value->kind != fields[i].kind &&
            value->kind != CN_YAML_NULL)
            return cn_yaml_refuse(cn_yaml_name(overlay->above_doc), value, path,
                                  cn_yaml_kind_word(fields[i].kind), err);
    return 0;
}

/* Checks the types of known fields that have no effect, in a map and below it. `path` is that of
 * the map, with a point behind it if it is not empty. The parser has limited the depth. */
static int
check_fields(const struct overlay *overlay, const struct cn_yaml *map, const char *path,
             struct cn_error *err)
{
    char below[FIELD_MAX];
    int rc = 0;

    for (uint32_t i = 0; !rc && map->kind == CN_YAML_MAP && i < map->n_items; i++) {
        const struct cn_yaml *value = map->items[i];
        const size_t from = strlen(path), len = value->key.len;

        if (from + len + sizeof(".") > FIELD_MAX || (len && memchr(value->key.ptr, '\0', len)))
            continue; /* not the name of any field */
        snprintf(below, sizeof(below), "%s%.*s", path, CN_STR_ARG(value->key));
        rc = check_field(overlay, value, below, err);
        strcat(below, ".");
        if (!rc)
            rc = check_fields(overlay, value, below, err);
        for (uint32_t k = 0; !rc && value->kind == CN_YAML_LIST && k < value->n_items; k++)
            rc = check_fields(overlay, value->items[k], below, err);
    }
    return rc;
}

/* --- writing --- */

static void
write_key(const struct cn_yaml *item, struct cn_buf *out)
{
    cn_yaml_write_text(item->key, out);
    cn_buf_puts(out, ": ");
}

static void
write_item(const struct cn_yaml *item, struct cn_buf *out)
{
    write_key(item, out);
    cn_yaml_write(item, CN_YAML_AS_YAML, out);
    cn_buf_puts(out, "\n");
}

/* Writes a map without its `key`, or with another value for it. */
static void
write_map_but(const struct cn_yaml *map, const char *key, const struct cn_yaml *instead,
              struct cn_buf *out)
{
    const char *comma = "";

    write_key(map, out);
    cn_buf_puts(out, "{");
    for (uint32_t i = 0; i < map->n_items; i++) {
        const struct cn_yaml *item = map->items[i];
        bool is_it = is_word(item->key, key);

        if (is_it && !instead)
            continue;
        cn_buf_puts(out, comma);
        comma = ",";
        write_key(item, out);
        cn_yaml_write(is_it ? instead : item, CN_YAML_AS_YAML, out);
    }
    cn_buf_puts(out, "}\n");
}

/* sequence_batching or dynamic_batching. */
static const struct cn_yaml *
block_of(const struct cn_yaml *root)
{
    const struct cn_yaml *block = find(root, CN_STR("sequenceBatching"));

    return block && block->kind == CN_YAML_MAP ? block : NULL;
}

/* Writes parameters: {key: {string_value: text}}, as Triton has them, becomes {key: text}, as
 * handlers know it from imported archives. */
static void
write_parameters(const struct cn_yaml *map, struct cn_buf *out)
{
    write_key(map, out);
    cn_buf_puts(out, "{");
    for (uint32_t i = 0; i < map->n_items; i++) {
        const struct cn_yaml *item = map->items[i], *text = cn_yaml_get(item, "string_value");

        cn_buf_puts(out, i ? "," : "");
        write_key(item, out);
        cn_yaml_write(text && item->n_items == 1 ? text : item, CN_YAML_AS_YAML, out);
    }
    cn_buf_puts(out, "}\n");
}

static void
write_below(const struct overlay *overlay, const struct cn_yaml *item, struct cn_buf *out)
{
    const struct cn_yaml *other = find(overlay->above, item->key);
    bool parameters = is_word(item->key, "parameters"),
         state = cn_str_eq(item->key, CN_STR("state"));

    if (other && overlay->workers_stay && cn_instances_own(other))
        other = NULL;
    if (other && overlay->batching_stays && other == overlay->above_block)
        other = NULL;
    if (other && parameters && other->n_items == 0)
        other = NULL; /* an empty map of parameters is shown for each model, so it says nothing */
    if (other || (overlay->batch_size && is_word(item->key, "batchSize")))
        return;
    if (overlay->state == CN_STATE_OVERLAY_OTHER && state && item->kind == CN_YAML_LIST)
        return;
    if (overlay->state == CN_STATE_OVERLAY_OTHER && state && item->kind == CN_YAML_MAP)
        write_map_but(item, "tensors", NULL, out);
    else if (overlay->state != CN_STATE_OVERLAY_NONE && item == overlay->below_block &&
             !overlay->above_block)
        write_map_but(item, "state", NULL, out); /* the other document has them outside the block */
    else
        write_item(item, out);
}

static void
write_above(const struct overlay *overlay, const struct cn_yaml *item, struct cn_buf *out)
{
    const struct cn_yaml *block = overlay->above_block;

    if (is_word(item->key, "parameters")) {
        if (item->n_items > 0)
            write_parameters(item, out);
    } else if (is_silent(item->key) || (overlay->workers_stay && cn_instances_own(item)) ||
               (overlay->batching_stays && item == block)) {
        return;
    } else if (item == block && overlay->state == CN_STATE_OVERLAY_SAME) {
        write_map_but(item, "state", cn_batching_get(overlay->below_block, "state"), out);
    } else {
        write_item(item, out);
    }
}

static void
write_both(const struct overlay *overlay, struct cn_buf *out)
{
    for (uint32_t i = 0; i < overlay->below->n_items; i++)
        write_below(overlay, overlay->below->items[i], out);
    for (uint32_t i = 0; i < overlay->above->n_items; i++)
        write_above(overlay, overlay->above->items[i], out);
    if (overlay->batch_size)
        cn_buf_printf(out, "batchSize: %u\n", overlay->batch_size);
    if (out->len == 0)
        cn_buf_puts(out, "{}\n");
}

/* --- what stays as it is --- */

/* If the archive's batchSize equals its maxBatchSize, it follows when the client changes
 * maxBatchSize, because Triton's users have only this one number. */
static void
settle_batch_size(struct overlay *overlay)
{
    const struct cn_yaml *of_rows = find(overlay->below, CN_STR("batchSize"));
    const struct cn_yaml *before = find(overlay->below, CN_STR("maxBatchSize"));
    const struct cn_yaml *after = find(overlay->above, CN_STR("maxBatchSize"));

    if (of_rows && before && after && !find(overlay->above, CN_STR("batchSize")) &&
        of_rows->kind == CN_YAML_INT && before->kind == CN_YAML_INT && after->kind == CN_YAML_INT &&
        of_rows->integer == before->integer && after->integer > 0 && after->integer <= 65536)
        overlay->batch_size = (uint32_t)after->integer;
}

/* Does this block equal the one that is shown for a model whose YAML has none? */
static bool
is_shown(const struct cn_batching *batching, const struct cn_model_config *config,
         uint32_t max_batch_size)
{
    const struct cn_queue_policy *policy = &batching->policies[0];
    uint32_t preferred = cn_batching_shown_preferred(config->batch_size, max_batch_size);

    if (batching->n_controls || batching->preserve_ordering || batching->reject_expired ||
        batching->delay_us != 1000 * (uint64_t)config->max_batch_delay_ms ||
        (batching->n_preferred != 0) != (preferred != 0) ||
        (preferred && (batching->n_preferred != 1 || batching->preferred[0] != preferred)))
        return false;
    if (config->sequence_batching)
        return batching->kind == CN_BATCHING_OLDEST &&
               batching->max_candidates == config->batch_size &&
               batching->idle_us == 1000 * config->sequence_max_idle_ms;
    return batching->kind == CN_BATCHING_DYNAMIC && batching->priority_levels == 0 &&
           !policy->delay && !policy->allow_override && !policy->timeout_us && !policy->max_queued;
}

/* Reads a whole document. The caller frees *io, also on failure. */
static int
read_document(const struct overlay *overlay, const struct cn_yaml_doc *doc,
              struct cn_model_config *config, struct cn_model_io **io, struct cn_error *err)
{
    int rc;

    *config = *overlay->base;
    *io = NULL;
    rc = cn_model_config_apply(config, doc, NULL, NULL, err);
    if (!rc)
        rc = cn_model_io_parse(doc, io, err);
    if (!rc && !*io)
        rc = cn_model_io_check_untyped(doc, err);
    return rc ? rc : cn_batching_parse(doc, overlay->model, *io, err);
}

/* The message without its "name:line:column". */
static const char *
sentence(const struct cn_error *err)
{
    const char *end = strstr(err->message, ": ");

    return end ? end : err->message;
}

/* Reports the error of the combined document. If `above` alone has the same error, its position is
 * what the client can use; a position in the combined document is in no file that anybody knows. */
static int
blame(const struct overlay *overlay, const struct cn_error *both, struct cn_error *err)
{
    struct cn_model_config config;
    struct cn_model_io *io;
    struct cn_error alone;
    int rc = read_document(overlay, overlay->above_doc, &config, &io, &alone);

    cn_model_io_unref(io);
    if (rc && strcmp(sentence(&alone), sentence(both)) == 0)
        return cn_fail(err, alone.code, "%s", alone.message);
    return cn_fail(err, both->code, "%s over the archive's YAML%s",
                   cn_yaml_name(overlay->above_doc), sentence(both));
}

/* Writes and checks the combined document, and finds out whether batching is as it was shown. */
static int
try_both(struct overlay *overlay, const struct cn_model_config *below, struct cn_buf *out,
         struct cn_error *err)
{
    const struct cn_yaml *own = find(overlay->below, CN_STR("sequenceBatching"));
    struct cn_yaml_doc *doc = NULL;
    struct cn_model_io *io = NULL;
    struct cn_model_config config;
    struct cn_error why;
    int rc;

    write_both(overlay, out);
    if (out->failed)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "model %s: not enough memory for its configuration",
                       overlay->model);
    rc = cn_yaml_parse("both", cn_buf_str(out), &doc, &why);
    if (!rc)
        rc = read_document(overlay, doc, &config, &io, &why);
    if (rc)
        rc = blame(overlay, &why, err);
    else if (io && io->batching && overlay->above_block && (!own || own->kind == CN_YAML_BOOL) &&
             overlay->state != CN_STATE_OVERLAY_OTHER)
        overlay->batching_stays = is_shown(io->batching, below, io->max_batch_size);
    cn_model_io_unref(io);
    cn_yaml_destroy(doc);
    return rc;
}

static int
settle_workers(struct overlay *overlay, const struct cn_model_config *below, struct cn_error *err)
{
    const struct cn_yaml *list = cn_instances_get(overlay->above);
    uint32_t workers = below->min_workers, shown;
    int rc;

    if (!list)
        return 0;
    rc = cn_instances_read(list, cn_yaml_name(overlay->above_doc), &shown, err);
    if (below->max_workers && below->max_workers < workers)
        workers = below->max_workers;
    overlay->workers_stay = !rc && (list->n_items == 0 || shown == workers) &&
                            !cn_yaml_get(overlay->above, "minWorkers") &&
                            !cn_yaml_get(overlay->above, "maxWorkers");
    return rc;
}

int
cn_overlay_write(const struct cn_yaml_doc *below, const struct cn_yaml_doc *above,
                 const char *model, const struct cn_model_config *base, struct cn_buf *out,
                 struct cn_error *err)
{
    struct overlay overlay = {.above_doc = above,
                              .below = below ? cn_yaml_root(below) : &nothing,
                              .above = cn_yaml_root(above),
                              .model = model,
                              .base = base};
    struct cn_model_config of_below = *base;
    size_t begin = out->len;
    int rc;

    if (overlay.above->kind != CN_YAML_MAP)
        return cn_fail(err, CN_E_CONFIG, "%s:%u:%u: expected a map of settings, found %s",
                       cn_yaml_name(above), overlay.above->line, overlay.above->column,
                       cn_yaml_kind_word(overlay.above->kind));
    /* A document may have very many keys, and this is looked at for each of them. */
    overlay.below_block = block_of(overlay.below);
    overlay.above_block = block_of(overlay.above);
    rc = check_fields(&overlay, overlay.above, "", err);
    if (!rc && below)
        rc = cn_model_config_apply(&of_below, below, NULL, NULL, err);
    if (!rc)
        rc = cn_model_state_compare(below, above, &overlay.state, err);
    if (!rc)
        rc = settle_workers(&overlay, &of_below, err);
    if (rc)
        return rc;
    settle_batch_size(&overlay);
    rc = try_both(&overlay, &of_below, out, err);
    if (!rc && overlay.batching_stays) {
        out->len = begin;
        rc = try_both(&overlay, &of_below, out, err);
    }
    return rc;
}
