/* config/model/model_io.c - reads a typed model's inputs and outputs from its YAML. Any thread.
 *
 * Each setting has several names: ours, and those of Triton's configuration in either spelling. A
 * list such as input_keys holds the names of one setting, and the first of them that the YAML has
 * counts. Names and shapes are copied into the arena of the struct cn_model_io, so the document can
 * be freed afterwards.
 *
 * A struct cn_model_io is shared: the model version has a reference, and so has each request that
 * may still need it after the version is gone. It is never changed after parsing, so no lock is
 * needed. */
#include "config/model/model_io.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/model/model_io_priv.h"
#include "core/memory/mem.h"

#define NAME_MAX_BYTES 256
#define BATCH_MAX 65536

static const char *const input_keys[] = {"inputs", "input", NULL};
static const char *const output_keys[] = {"outputs", "output", NULL};
static const char *const batch_keys[] = {"maxBatchSize", "max_batch_size", NULL};
static const char *const decoupled_keys[] = {"decoupled", NULL};
static const char *const policy_keys[] = {"modelTransactionPolicy", "model_transaction_policy",
                                          NULL};

const struct cn_yaml *
cn_io_get(const struct cn_yaml *map, const char *const *keys)
{
    const struct cn_yaml *value = NULL;

    for (; *keys && !value; keys++)
        value = cn_yaml_get(map, *keys);
    return value;
}

int
cn_io_refuse(const struct cn_io_parse *parse, const struct cn_yaml *at, const char *what,
             const char *expected)
{
    return cn_yaml_refuse(parse->name, at, what, expected, parse->err);
}

/* Reads the name of a tensor. YAML may take it for a number; then the name is the text as
 * written. */
int
cn_io_read_name(const struct cn_io_parse *parse, const struct cn_yaml *item,
                const struct cn_yaml *name, const char *list, struct cn_str *out)
{
    if (!name || name->text.len == 0 || name->text.len > NAME_MAX_BYTES ||
        name->kind == CN_YAML_LIST || name->kind == CN_YAML_MAP || name->kind == CN_YAML_NULL)
        return cn_io_refuse(parse, name ? name : item, list,
                            "a name of 1 to 256 bytes for each tensor");
    *out = (struct cn_str){cn_arena_strndup(&parse->io->arena, name->text.ptr, name->text.len),
                           name->text.len};
    return 0;
}

static const char *const type_keys[] = {"dataType", "data_type", "datatype", NULL};

int
cn_io_read_type(const struct cn_io_parse *parse, const struct cn_yaml *item, enum cn_datatype *out)
{
    const struct cn_yaml *type = cn_io_get(item, type_keys);

    *out = CN_DATATYPE_NONE;
    if (type && type->kind == CN_YAML_STRING)
        *out = cn_datatype_parse(type->text);
    if (*out == CN_DATATYPE_NONE)
        return cn_io_refuse(
            parse, type ? type : item, "dataType",
            "BOOL, UINT8 to UINT64, INT8 to INT64, FP16, BF16, FP32, FP64 or BYTES");
    return 0;
}

/* Is the tensor written as protobuf writes JSON? That form leaves out a list without elements. */
static bool
is_protobufs(const struct cn_yaml *item)
{
    const struct cn_yaml *type = cn_io_get(item, type_keys);

    return type && type->kind == CN_YAML_STRING && type->text.len > 5 &&
           memcmp(type->text.ptr, "TYPE_", 5) == 0;
}

int
cn_io_read_sizes(const struct cn_io_parse *parse, const struct cn_yaml *item, int64_t least,
                 int64_t *out, uint32_t *rank)
{
    static const char *const keys[] = {"dims", "shape", NULL};
    const struct cn_yaml *dims = cn_io_get(item, keys);

    *rank = 0;
    if (!dims && is_protobufs(item))
        return 0;
    /* The YAML leaves out the batch dimension, so it may list one size less than a tensor has. */
    if (!dims || dims->kind != CN_YAML_LIST || dims->n_items > CN_TENSOR_RANK_MAX - 1)
        return cn_io_refuse(parse, dims ? dims : item, "dims", "a list of up to 15 sizes");
    for (uint32_t i = 0; i < dims->n_items; i++) {
        const struct cn_yaml *dim = dims->items[i];

        if (!cn_yaml_take_integer(dim, &out[i]) || out[i] < -1 || (out[i] < least && out[i] >= 0))
            return cn_io_refuse(parse, dim, "dims", "sizes from 1, or -1 for any");
    }
    *rank = dims->n_items;
    return 0;
}

int
cn_io_read_dims(const struct cn_io_parse *parse, const struct cn_yaml *item, int64_t *out,
                uint32_t *rank)
{
    return cn_io_read_sizes(parse, item, 1, out, rank);
}

static int
read_flag(const struct cn_io_parse *parse, const struct cn_yaml *item, const char *const *keys,
          bool *out)
{
    const struct cn_yaml *flag = cn_io_get(item, keys);

    if (!flag)
        return 0;
    if (flag->kind != CN_YAML_BOOL)
        return cn_io_refuse(parse, flag, keys[0], "true or false");
    *out = flag->boolean;
    return 0;
}

static int
read_tensor(const struct cn_io_parse *parse, const struct cn_yaml *item, const char *list,
            struct cn_tensor_spec *spec)
{
    static const char *const optional[] = {"optional", NULL};
    static const char *const ragged[] = {"ragged", "allowRaggedBatch", "allow_ragged_batch", NULL};
    int rc;

    *spec = (struct cn_tensor_spec){0};
    if (item->kind != CN_YAML_MAP)
        return cn_io_refuse(parse, item, list,
                            "a map with name, dataType and dims for each tensor");
    rc = cn_io_read_name(parse, item, cn_yaml_get(item, "name"), list, &spec->name);
    if (!rc)
        rc = cn_io_read_type(parse, item, &spec->type);
    if (!rc)
        rc = cn_io_read_dims(parse, item, spec->dims, &spec->rank);
    if (!rc)
        rc = read_flag(parse, item, optional, &spec->optional);
    if (!rc)
        rc = read_flag(parse, item, ragged, &spec->ragged);
    return rc;
}

/* Compares the ends first, because the names of a model are often INPUT0, INPUT1 and so on. No
 * declared name is empty. */
static bool
is_named(const struct cn_tensor_spec *spec, struct cn_str name)
{
    return spec->name.len == name.len && spec->name.ptr[name.len - 1] == name.ptr[name.len - 1] &&
           memcmp(spec->name.ptr, name.ptr, name.len) == 0;
}

static const struct cn_tensor_spec *
find(const struct cn_tensor_spec *specs, uint32_t n, struct cn_str name, uint32_t from)
{
    uint32_t at = from < n ? from : 0;

    for (uint32_t i = 0; i < n; i++, at = at + 1 < n ? at + 1 : 0)
        if (is_named(&specs[at], name))
            return &specs[at];
    return NULL;
}

/* Reads a list of inputs or outputs, whose names must differ. */
static int
read_tensors(const struct cn_io_parse *parse, const struct cn_yaml *list,
             struct cn_tensor_spec **out, uint32_t *n)
{
    char key[CN_YAML_SHOWN_MAX], twice[CN_YAML_SHOWN_MAX];
    int rc;

    cn_yaml_shown(list->key, key);
    if (list->kind != CN_YAML_LIST || list->n_items == 0 || list->n_items > CN_MODEL_TENSORS_MAX)
        return cn_io_refuse(parse, list, key, "a list of 1 to 256 tensors");
    *out = cn_arena_alloc(&parse->io->arena, sizeof(**out) * list->n_items);
    for (uint32_t i = 0; i < list->n_items; i++) {
        if ((rc = read_tensor(parse, list->items[i], key, &(*out)[i])))
            return rc;
        if (find(*out, i, (*out)[i].name, 0))
            return cn_fail(parse->err, CN_E_CONFIG, "%s:%u:%u: %s: two tensors are named %s",
                           parse->name, list->items[i]->line, list->items[i]->column, key,
                           cn_yaml_shown((*out)[i].name, twice));
        *n = i + 1;
    }
    return 0;
}

static int
read_batch_size(const struct cn_io_parse *parse, const struct cn_yaml *root)
{
    const struct cn_yaml *size = cn_io_get(root, batch_keys);

    if (!size)
        return 0;
    if (size->kind != CN_YAML_INT || size->integer < 0 || size->integer > BATCH_MAX)
        return cn_io_refuse(parse, size, batch_keys[0], "an integer from 0 to 65536");
    parse->io->max_batch_size = (uint32_t)size->integer;
    return 0;
}

/* Reads decoupled: true, or model_transaction_policy: {decoupled: true}. */
static int
read_decoupled(const struct cn_io_parse *parse, const struct cn_yaml *root)
{
    const struct cn_yaml *policy = cn_io_get(root, policy_keys);

    if (policy && policy->kind != CN_YAML_MAP)
        return cn_io_refuse(parse, policy, policy_keys[0], "a map with decoupled: true or false");
    if (policy && cn_io_get(policy, decoupled_keys))
        return read_flag(parse, policy, decoupled_keys, &parse->io->decoupled);
    return read_flag(parse, root, decoupled_keys, &parse->io->decoupled);
}

/* Inputs make a model typed, so outputs are then required. */
static int
read_all(const struct cn_io_parse *parse, const struct cn_yaml *root, const struct cn_yaml *inputs)
{
    const struct cn_yaml *outputs = cn_io_get(root, output_keys);
    struct cn_model_io *io = parse->io;
    int rc = read_tensors(parse, inputs, &io->inputs, &io->n_inputs);

    if (!rc && !outputs)
        rc = cn_fail(parse->err, CN_E_CONFIG,
                     "%s:%u:%u: a model with inputs needs outputs: a list of tensors", parse->name,
                     inputs->line, inputs->column);
    if (!rc)
        rc = read_tensors(parse, outputs, &io->outputs, &io->n_outputs);
    if (!rc)
        rc = read_batch_size(parse, root);
    if (!rc)
        rc = read_decoupled(parse, root);
    for (uint32_t i = 0; !rc && i < io->n_inputs; i++)
        io->n_required += !io->inputs[i].optional;
    if (!rc)
        rc = cn_model_state_parse(parse, root);
    return rc;
}

int
cn_model_io_parse(const struct cn_yaml_doc *doc, struct cn_model_io **out, struct cn_error *err)
{
    const struct cn_yaml *root = cn_yaml_root(doc), *inputs = cn_io_get(root, input_keys);
    struct cn_io_parse parse = {.name = cn_yaml_name(doc), .err = err};
    int rc;

    *out = NULL;
    if (!inputs)
        return cn_model_state_without_inputs(&parse, root);
    parse.io = cn_alloc(sizeof(*parse.io));
    atomic_init(&parse.io->refs, 1);
    cn_arena_init(&parse.io->arena);
    rc = read_all(&parse, root, inputs);
    if (rc) {
        cn_model_io_unref(parse.io);
        return rc;
    }
    *out = parse.io;
    return 0;
}

/* A model without inputs is untyped, and outputs without inputs have no effect. But a mistake in
 * them is still reported, because the author expected an effect. */
int
cn_model_io_check_untyped(const struct cn_yaml_doc *doc, struct cn_error *err)
{
    const struct cn_yaml *root = cn_yaml_root(doc), *outputs = cn_io_get(root, output_keys);
    struct cn_model_io unused = {.n_inputs = 0};
    struct cn_io_parse parse = {&unused, cn_yaml_name(doc), err};
    int rc = 0;

    cn_arena_init(&unused.arena);
    if (outputs)
        rc = read_tensors(&parse, outputs, &unused.outputs, &unused.n_outputs);
    if (!rc)
        rc = read_batch_size(&parse, root);
    if (!rc)
        rc = read_decoupled(&parse, root);
    cn_arena_fini(&unused.arena);
    return rc;
}

bool
cn_model_io_knows(struct cn_str key)
{
    const char *const *lists[] = {input_keys, output_keys, batch_keys, decoupled_keys, policy_keys};

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        for (const char *const *at = lists[i]; *at; at++)
            if (cn_str_eq(key, cn_str_from(*at)))
                return true;
    return false;
}

struct cn_model_io *
cn_model_io_ref(const struct cn_model_io *io)
{
    /* only the count of references changes */
    struct cn_model_io *shared = (struct cn_model_io *)(uintptr_t)io;

    atomic_fetch_add_explicit(&shared->refs, 1, memory_order_relaxed);
    return shared;
}

void
cn_model_io_unref(struct cn_model_io *io)
{
    if (!io || atomic_fetch_sub_explicit(&io->refs, 1, memory_order_acq_rel) > 1)
        return;
    cn_arena_fini(&io->arena);
    cn_free(io);
}

const struct cn_tensor_spec *
cn_model_io_input(const struct cn_model_io *io, struct cn_str name, uint32_t from)
{
    return find(io->inputs, io->n_inputs, name, from);
}

const struct cn_tensor_spec *
cn_model_io_output(const struct cn_model_io *io, struct cn_str name, uint32_t from)
{
    return find(io->outputs, io->n_outputs, name, from);
}
