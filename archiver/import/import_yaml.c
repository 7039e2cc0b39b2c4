/* archiver/import/import_yaml.c - turns a tree of config.pbtxt into a model's YAML. Archiver only.
 *
 * Continuo reads most of Triton's fields under their own names, so they are copied as they are:
 * import_keys.def says for each path whether it is one value, a list or a map. A few fields are
 * written by code of their own, because their YAML looks different. All others are reported as
 * lost, with the note of their row, so that nobody finds out in production that a setting did not
 * come along. */
#include "archiver/import/import_yaml.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "archiver/archive/archive_path.h"
#include "core/memory/mem.h"

#define PATH_BYTES 256

enum import { IMPORT_ONE, IMPORT_LIST, IMPORT_MAP, IMPORT_OWN, IMPORT_DROP };

static const struct key {
    const char *path;
    enum import import;
    const char *note;
} keys[] = {
#define CN_IMPORT_KEY(path, kind, note) {path, IMPORT_##kind, note},
#include "archiver/import/import_keys.def"
#undef CN_IMPORT_KEY
};

struct import_walk {
    const char *name; /* the name of the file */
    enum cn_import_kind kind;
    const char *dir; /* the model's folder */
    struct cn_buf *out;
    cn_import_lost_fn lost;
    void *ctx;
    struct cn_error *err;
};

static int put_message(const struct import_walk *walk, const struct cn_pbtxt *message,
                       const char *path);

static int
fail_at(const struct import_walk *walk, const struct cn_pbtxt *field, const char *what)
{
    return cn_fail(walk->err, CN_E_INVALID_MODEL, "%s:%u:%u: %.*s: %s", walk->name, field->line,
                   field->column, CN_STR_ARG(field->name), what);
}

static const struct key *
find_key(const char *path)
{
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (strcmp(keys[i].path, path) == 0)
            return &keys[i];
    return NULL;
}

/* Writes the text in double quotes. YAML reads the same escapes as JSON. */
static void
put_text(struct cn_buf *out, struct cn_str text)
{
    cn_buf_puts(out, "\"");
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];

        if (c == '"' || c == '\\')
            cn_buf_printf(out, "\\%c", c);
        else if (c < ' ' || c == 0x7f)
            cn_buf_printf(out, "\\u%04x", c);
        else
            cn_buf_append(out, text.ptr + i, 1);
    }
    cn_buf_puts(out, "\"");
}

/* Writes a number or word. YAML writes them as protocol buffers do, except hexadecimal and octal
 * numbers. */
static int
put_plain(const struct import_walk *walk, const struct cn_pbtxt *field)
{
    char text[64], *end;
    long long value;

    if (field->text.len >= sizeof(text) || memchr(field->text.ptr, ' ', field->text.len))
        return fail_at(walk, field, "the value is too long or contains a space");
    memcpy(text, field->text.ptr, field->text.len);
    text[field->text.len] = '\0';
    value = strtoll(text, &end, 0);
    if (field->kind == CN_PBTXT_NUMBER && *end == '\0')
        cn_buf_printf(walk->out, "%lld", value);
    else
        cn_buf_puts(walk->out, text);
    return 0;
}

static int
put_value(const struct import_walk *walk, const struct cn_pbtxt *field, const char *path)
{
    if (field->kind == CN_PBTXT_MESSAGE)
        return put_message(walk, field, path);
    if (field->kind != CN_PBTXT_STRING)
        return put_plain(walk, field);
    put_text(walk->out, field->text);
    return 0;
}

static bool
is_first_of_name(const struct cn_pbtxt *message, const struct cn_pbtxt *field)
{
    for (const struct cn_pbtxt *other = message->first; other != field; other = other->next)
        if (cn_str_eq(other->name, field->name))
            return false;
    return true;
}

static int
put_list(const struct import_walk *walk, const struct cn_pbtxt *field, const char *path)
{
    const char *comma = "";
    int rc = 0;

    cn_buf_puts(walk->out, "[");
    for (const struct cn_pbtxt *one = field; rc == 0 && one; one = one->next) {
        if (!cn_str_eq(one->name, field->name))
            continue;
        cn_buf_puts(walk->out, comma);
        comma = ", ";
        rc = put_value(walk, one, path);
    }
    cn_buf_puts(walk->out, "]");
    return rc;
}

/* Writes a map<key, value>. Its text has a message with both for each entry. */
static int
put_map(const struct import_walk *walk, const struct cn_pbtxt *field, const char *path)
{
    const char *comma = "";
    int rc = 0;

    cn_buf_puts(walk->out, "{");
    for (const struct cn_pbtxt *one = field; rc == 0 && one; one = one->next) {
        const struct cn_pbtxt *key, *value;

        if (!cn_str_eq(one->name, field->name))
            continue;
        key = one->kind == CN_PBTXT_MESSAGE ? cn_pbtxt_get(one, "key") : NULL;
        value = key ? cn_pbtxt_get(one, "value") : NULL;
        if (!value || key->kind == CN_PBTXT_MESSAGE)
            return fail_at(walk, one, "an entry of a map needs a key and a value");
        cn_buf_puts(walk->out, comma);
        comma = ", ";
        put_text(walk->out, key->text);
        cn_buf_puts(walk->out, ": ");
        rc = put_value(walk, value, path);
    }
    cn_buf_puts(walk->out, "}");
    return rc;
}

/* Reports what is lost of `optimization`; put_onnx() has read the rest. */
static void
tell_optimization(const struct import_walk *walk, const struct cn_pbtxt *optimization)
{
    if (walk->kind != CN_IMPORT_ONNX || optimization->kind != CN_PBTXT_MESSAGE) {
        walk->lost(walk->ctx, "optimization", optimization->line,
                   "it configures backends that are not used here");
        return;
    }
    for (const struct cn_pbtxt *one = optimization->first; one; one = one->next)
        if (cn_str_eq(one->name, CN_STR("execution_accelerators")))
            walk->lost(walk->ctx, "optimization.execution_accelerators", one->line,
                       "name execution providers in the map onnx of the model's YAML");
        else if (!cn_str_eq(one->name, CN_STR("graph")))
            walk->lost(walk->ctx, "optimization", one->line,
                       "only graph has an effect on ONNX models");
}

/* Writes parameters { key: "k" value: { string_value: "v" } } as a map for the handler. */
static int
put_parameters(const struct import_walk *walk, const struct cn_pbtxt *config)
{
    const char *comma = "parameters: {";

    for (const struct cn_pbtxt *one = config->first; one; one = one->next) {
        const struct cn_pbtxt *key, *value;

        if (!cn_str_eq(one->name, CN_STR("parameters")))
            continue;
        key = one->kind == CN_PBTXT_MESSAGE ? cn_pbtxt_get(one, "key") : NULL;
        value = key ? cn_pbtxt_get(one, "value") : NULL;
        value =
            value && value->kind == CN_PBTXT_MESSAGE ? cn_pbtxt_get(value, "string_value") : NULL;
        if (!value || value->kind != CN_PBTXT_STRING || key->kind != CN_PBTXT_STRING)
            return fail_at(walk, one, "expected key and value { string_value }");
        cn_buf_puts(walk->out, comma);
        comma = ", ";
        put_text(walk->out, key->text);
        cn_buf_puts(walk->out, ": ");
        put_text(walk->out, value->text);
    }
    if (comma[0] == ',')
        cn_buf_puts(walk->out, "}\n");
    return 0;
}

/* With a scheduler, the handler gets up to max_batch_size rows in a call. Without one, each row
 * gets a call of its own. */
static void
put_batch_size(const struct import_walk *walk, const struct cn_pbtxt *config)
{
    const struct cn_pbtxt *size = cn_pbtxt_get(config, "max_batch_size");

    if (size && size->kind == CN_PBTXT_NUMBER && !cn_str_eq(size->text, CN_STR("0")) &&
        (cn_pbtxt_get(config, "sequence_batching") || cn_pbtxt_get(config, "dynamic_batching"))) {
        cn_buf_puts(walk->out, "batchSize: ");
        put_plain(walk, size);
        cn_buf_puts(walk->out, "\n");
    }
}

/* Returns whether the field is to be written. */
static bool
is_carried(const struct import_walk *walk, const struct cn_pbtxt *field, const char *path,
           const struct key **out)
{
    const struct key *key = find_key(path);

    *out = key;
    if (!key)
        walk->lost(walk->ctx, path, field->line, "unknown field");
    else if (key->import == IMPORT_DROP && key->note[0])
        walk->lost(walk->ctx, path, field->line, key->note);
    else if (strcmp(path, "optimization") == 0)
        tell_optimization(walk, field);
    return key && key->import != IMPORT_DROP && key->import != IMPORT_OWN;
}

static int
put_field(const struct import_walk *walk, const struct cn_pbtxt *field, const struct key *key)
{
    if (key->import == IMPORT_LIST)
        return put_list(walk, field, key->path);
    if (key->import == IMPORT_MAP)
        return put_map(walk, field, key->path);
    return put_value(walk, field, key->path);
}

/* Writes a message in one line, in braces. The fields of the document itself get one line each. */
static int
put_message(const struct import_walk *walk, const struct cn_pbtxt *message, const char *path)
{
    const bool whole = path[0] == '\0';
    const char *comma = "";
    int rc = 0;

    cn_buf_puts(walk->out, whole ? "" : "{");
    for (const struct cn_pbtxt *field = message->first; rc == 0 && field; field = field->next) {
        const struct key *key;
        char below[PATH_BYTES];

        if (!is_first_of_name(message, field))
            continue;
        snprintf(below, sizeof(below), "%s%s%.*s", path, whole ? "" : ".",
                 (int)(field->name.len < 100 ? field->name.len : 100), field->name.ptr);
        if (!is_carried(walk, field, below, &key))
            continue;
        cn_buf_printf(walk->out, "%s%.*s: ", comma, CN_STR_ARG(field->name));
        comma = whole ? "" : ", ";
        rc = put_field(walk, field, key);
        cn_buf_puts(walk->out, whole ? "\n" : "");
    }
    cn_buf_puts(walk->out, whole ? "" : "}");
    return rc;
}

/* --- what has another form here --- */

/* Returns how many GPUs the group names; on each of them Triton has `count` instances. */
static unsigned
count_gpus(const struct cn_pbtxt *group)
{
    unsigned n = 0;

    for (const struct cn_pbtxt *one = group->first; one; one = one->next)
        n += cn_str_eq(one->name, CN_STR("gpus")) && one->kind == CN_PBTXT_NUMBER;
    return n ? n : 1;
}

/* Writes deviceType and deviceIds, if a group of instances is on GPUs. */
static void
put_devices(const struct import_walk *walk, const struct cn_pbtxt *config)
{
    const char *comma = "deviceIds: [";
    bool gpu = false;

    for (const struct cn_pbtxt *group = config->first; group; group = group->next) {
        const struct cn_pbtxt *kind =
            cn_str_eq(group->name, CN_STR("instance_group")) ? cn_pbtxt_get(group, "kind") : NULL;

        if (!kind || !cn_str_eq(kind->text, CN_STR("KIND_GPU")))
            continue;
        cn_buf_puts(walk->out, gpu ? "" : "deviceType: gpu\n");
        gpu = true;
    }
    for (const struct cn_pbtxt *group = config->first; gpu && group; group = group->next) {
        if (!cn_str_eq(group->name, CN_STR("instance_group")))
            continue;
        for (const struct cn_pbtxt *one = group->first; one; one = one->next) {
            if (!cn_str_eq(one->name, CN_STR("gpus")) || one->kind != CN_PBTXT_NUMBER)
                continue;
            cn_buf_printf(walk->out, "%s%.*s", comma, CN_STR_ARG(one->text));
            comma = ", ";
        }
    }
    if (comma[0] == ',')
        cn_buf_puts(walk->out, "]\n");
}

/* Triton's instances are our workers. */
static int
put_instances(const struct import_walk *walk, const struct cn_pbtxt *config)
{
    uint64_t workers = 0;

    for (const struct cn_pbtxt *group = config->first; group; group = group->next) {
        const struct cn_pbtxt *count, *kind;
        long long n = 1;
        char *end = NULL, text[24];

        if (!cn_str_eq(group->name, CN_STR("instance_group")))
            continue;
        if (group->kind != CN_PBTXT_MESSAGE)
            return fail_at(walk, group, "expected a message");
        count = cn_pbtxt_get(group, "count");
        kind = cn_pbtxt_get(group, "kind");
        if (count) {
            snprintf(text, sizeof(text), "%.*s", CN_STR_ARG(count->text));
            n = strtoll(text, &end, 0);
            if (count->kind != CN_PBTXT_NUMBER || *end || n < 0 || n > 1024)
                return fail_at(walk, count, "expected a number from 0 to 1024");
        }
        if (kind && cn_str_eq(kind->text, CN_STR("KIND_GPU"))) {
            if (walk->kind == CN_IMPORT_HANDLER)
                walk->lost(walk->ctx, "instance_group.kind", kind->line,
                           "the instances become workers on the CPU");
            else
                n *= count_gpus(group);
        }
        workers += (uint64_t)n;
    }
    if (workers > 0)
        cn_buf_printf(walk->out, "minWorkers: %" PRIu64 "\nmaxWorkers: %" PRIu64 "\n", workers,
                      workers);
    if (walk->kind != CN_IMPORT_HANDLER)
        put_devices(walk, config);
    return 0;
}

/* Returns the text of a parameter; .ptr is NULL if there is none. */
static struct cn_str
parameter_of(const struct cn_pbtxt *config, const char *name)
{
    for (const struct cn_pbtxt *one = config->first; one; one = one->next) {
        const struct cn_pbtxt *key, *value;

        if (!cn_str_eq(one->name, CN_STR("parameters")) || one->kind != CN_PBTXT_MESSAGE)
            continue;
        key = cn_pbtxt_get(one, "key");
        value = cn_pbtxt_get(one, "value");
        value =
            value && value->kind == CN_PBTXT_MESSAGE ? cn_pbtxt_get(value, "string_value") : NULL;
        if (key && value && value->kind == CN_PBTXT_STRING &&
            cn_str_eq(key->text, cn_str_from(name)))
            return value->text;
    }
    return (struct cn_str){NULL, 0};
}

char *
cn_import_environment(const struct cn_pbtxt *config, const char *dir)
{
    static const char variable[] = "$$TRITON_MODEL_DIRECTORY";
    struct cn_str value = parameter_of(config, "EXECUTION_ENV_PATH");
    char *real = realpath(dir, NULL);
    struct cn_buf path;

    cn_buf_init(&path, 0);
    if (value.len > sizeof(variable) - 1 &&
        memcmp(value.ptr, variable, sizeof(variable) - 1) == 0) {
        value.ptr += sizeof(variable) - 1;
        value.len -= sizeof(variable) - 1;
        cn_buf_puts(&path, real ? real : dir);
    }
    free(real); /* realpath's */
    if (value.len)
        cn_buf_append(&path, value.ptr, value.len);
    return cn_buf_take(&path, NULL);
}

/* Names the interpreter of the environment, if that is a folder. */
static void
put_environment(const struct import_walk *walk, const struct cn_pbtxt *config)
{
    char *path = cn_import_environment(config, walk->dir), *interpreter;
    const struct cn_pbtxt *line = cn_pbtxt_get(config, "parameters");

    if (!path || !*path) {
        cn_free(path);
        return;
    }
    interpreter = cn_path_join(path, "bin/python3");
    if (access(interpreter, X_OK) == 0) {
        cn_buf_puts(walk->out, "python: ");
        put_text(walk->out, cn_str_from(interpreter));
        cn_buf_puts(walk->out, "\n");
    } else {
        walk->lost(walk->ctx, "parameters.EXECUTION_ENV_PATH", line ? line->line : 0,
                   "it is not the folder of an environment with bin/python3. Unpack the "
                   "environment and name its folder, or name an interpreter with --python");
    }
    cn_free(interpreter);
    cn_free(path);
}

/* Triton's levels of graph optimization are -1, 1 and 2; without one, all optimizations are on. */
static void
put_onnx(const struct import_walk *walk, const struct cn_pbtxt *config)
{
    static const struct {
        const char *name, *key;
    } counts[] = {{"intra_op_thread_count", "threads"},
                  {"inter_op_thread_count", "interOpThreads"}};
    const struct cn_pbtxt *optimization = cn_pbtxt_get(config, "optimization");
    const struct cn_pbtxt *graph = optimization ? cn_pbtxt_get(optimization, "graph") : NULL;
    const struct cn_pbtxt *level = graph ? cn_pbtxt_get(graph, "level") : NULL;
    const char *comma = "onnx: {";

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct cn_str value = parameter_of(config, counts[i].name);
        char text[24], *end;
        long long n;

        snprintf(text, sizeof(text), "%.*s", value.len < 20 ? (int)value.len : 0,
                 value.ptr ? value.ptr : "");
        n = strtoll(text, &end, 10);
        if (*text == '\0' || *end || n < 1) /* 0 means "as many as there are cores" */
            continue;
        cn_buf_printf(walk->out, "%s%s: %lld", comma, counts[i].key, n);
        comma = ", ";
    }
    if (level) {
        cn_buf_printf(walk->out, "%sgraphOptimization: %s", comma,
                      cn_str_eq(level->text, CN_STR("-1"))  ? "basic"
                      : cn_str_eq(level->text, CN_STR("1")) ? "extended"
                      : cn_str_eq(level->text, CN_STR("2")) ? "none"
                                                            : "all");
        comma = ", ";
    }
    if (comma[0] == ',')
        cn_buf_puts(walk->out, "}\n");
}

int
cn_import_yaml(const char *name, const struct cn_pbtxt *config, enum cn_import_kind kind,
               const char *dir, struct cn_buf *out, cn_import_lost_fn lost, void *ctx,
               struct cn_error *err)
{
    const struct import_walk walk = {name, kind, dir, out, lost, ctx, err};
    int rc;

    cn_buf_printf(out, "# Written by continuo-archiver import from %s\n", name);
    rc = put_instances(&walk, config);
    if (rc == 0)
        put_batch_size(&walk, config);
    if (rc == 0 && kind == CN_IMPORT_PYTHON)
        put_environment(&walk, config);
    if (rc == 0 && kind == CN_IMPORT_ONNX)
        put_onnx(&walk, config);
    if (rc == 0)
        rc = put_message(&walk, config, "");
    if (rc == 0)
        rc = put_parameters(&walk, config);
    if (rc == 0 && out->failed)
        rc = cn_fail(err, CN_E_OUT_OF_MEMORY, "%s: out of memory while writing its YAML", name);
    return rc;
}
