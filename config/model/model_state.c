/* config/model/model_state.c - reads a model's state tensors from its YAML. Any thread.
 *
 * A state tensor is an output of one step that becomes an input of the next step of the same
 * sequence. Its declaration has three parts: the names of the two tensors, the datatype and shape,
 * and the first value, which is zeros by default, nothing, a file of the archive, or an input of
 * the first request.
 *
 * The list may be in three places (`state`, `state.tensors`, `sequence_batching.state`), and only
 * in one of them. It is read in two passes: read_list reads each tensor by itself, and check_state
 * then compares it with the model's inputs and outputs. A state that is also an output is visible
 * to clients; one that is also an input is an error, unless the first request may set it.
 *
 * Messages about initial_state are worded as in Triton, because its users search for them. */
#include "config/model/model_state.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/model/model_io_priv.h"

#define PATH_MAX_BYTES 1024
#define READ_BYTES 65536

/* The folder in which Triton has the files of initial_state. */
#define TRITON_FOLDER "initial_state/"

static const char *const batching_keys[] = {"sequence_batching", "sequenceBatching", NULL};

/* --- one tensor --- */

static int
fail_at(const struct cn_io_parse *parse, const struct cn_yaml *at, const char *text)
{
    return cn_fail(parse->err, CN_E_CONFIG, "%s:%u:%u: state: %s", parse->name, at->line,
                   at->column, text);
}

/* Reads `name`, or `input` and `output`. */
static int
read_names(const struct cn_io_parse *parse, const struct cn_yaml *item, struct cn_state_spec *spec)
{
    static const char *const inputs[] = {"input", "inputName", "input_name", NULL};
    static const char *const outputs[] = {"output", "outputName", "output_name", NULL};
    const struct cn_yaml *name = cn_yaml_get(item, "name");
    const struct cn_yaml *input = cn_io_get(item, inputs), *output = cn_io_get(item, outputs);
    int rc;

    rc = cn_io_read_name(parse, item, input ? input : name, "state", &spec->input);
    if (!rc)
        rc = cn_io_read_name(parse, item, output ? output : name, "state", &spec->output);
    return rc;
}

/* batchAxis is where the batch dimension is inserted into the shape. */
static int
read_axis(const struct cn_io_parse *parse, const struct cn_yaml *item, struct cn_state_spec *spec)
{
    static const char *const keys[] = {"batchAxis", "batch_axis", NULL};
    const struct cn_yaml *axis = cn_io_get(item, keys);

    if (!axis)
        return 0;
    if (axis->kind != CN_YAML_INT || axis->integer < 0 || axis->integer > spec->rank)
        return cn_io_refuse(parse, axis, "state: batchAxis",
                            "a number from 0 to the number of dims");
    spec->batch_axis = (uint32_t)axis->integer;
    return 0;
}

static bool
has_open_dims(const struct cn_state_spec *spec)
{
    for (uint32_t i = 0; i < spec->rank; i++)
        if (spec->dims[i] < 0)
            return true;
    return false;
}

/* Reads the dims of a new state: any size where the declaration has -1, otherwise the same. */
static int
read_init_dims(const struct cn_io_parse *parse, const struct cn_yaml *at,
               struct cn_state_spec *spec)
{
    int64_t dims[CN_TENSOR_RANK_MAX];
    uint32_t rank;
    /* a size of 0 is allowed: the state begins empty */
    int rc = cn_io_read_sizes(parse, at, 0, dims, &rank);

    if (rc)
        return rc;
    for (uint32_t i = 0; i < rank; i++)
        if (dims[i] < 0)
            return cn_fail(parse->err, CN_E_CONFIG,
                           "%s:%u:%u: 'initial_state' field for state input name '%s' contains "
                           "variable dimensions.",
                           parse->name, at->line, at->column, spec->input.ptr);
    for (uint32_t i = 0; i < rank && rank == spec->rank; i++)
        if (spec->dims[i] >= 0 && dims[i] != spec->dims[i])
            return cn_fail(parse->err, CN_E_CONFIG,
                           "%s:%u:%u: 'initial_state' dim for input name '%s' doesn't match "
                           "'state' dim description. %" PRId64 " != %" PRId64,
                           parse->name, at->line, at->column, spec->input.ptr, dims[i],
                           spec->dims[i]);
    if (rank != spec->rank)
        return cn_fail(
            parse->err, CN_E_CONFIG,
            "%s:%u:%u: the initial state of '%s' has %u dims, but its declaration has %u",
            parse->name, at->line, at->column, spec->input.ptr, rank, spec->rank);
    memcpy(spec->init_dims, dims, sizeof(dims[0]) * rank);
    return 0;
}

static int
read_file_name(const struct cn_io_parse *parse, const struct cn_yaml *file, const char *folder,
               struct cn_state_spec *spec)
{
    char *path;

    if (file->kind != CN_YAML_STRING || file->text.len == 0 || file->text.len > 512 ||
        file->text.ptr[0] == '/' || memchr(file->text.ptr, '\0', file->text.len))
        return cn_io_refuse(parse, file, "state: file", "the path of a file in the archive");
    path = cn_arena_printf(&parse->io->arena, "%s%.*s", folder, CN_STR_ARG(file->text));
    if (strstr(path, ".."))
        return cn_io_refuse(parse, file, "state: file", "the path of a file in the archive");
    spec->init = CN_STATE_FILE;
    spec->init_from = cn_str_from(path);
    return 0;
}

static bool
is_word(const struct cn_yaml *value, struct cn_str word)
{
    return value->kind == CN_YAML_STRING && cn_str_eq(value->text, word);
}

/* Reads `init`: zeros, none, or a map with dims, file or caller. */
static int
read_init(const struct cn_io_parse *parse, const struct cn_yaml *init, struct cn_state_spec *spec)
{
    const struct cn_yaml *file = cn_yaml_get(init, "file"), *caller = cn_yaml_get(init, "caller");
    int rc = 0;

    if (is_word(init, CN_STR("none"))) {
        spec->init = CN_STATE_NONE;
        return 0;
    }
    if (is_word(init, CN_STR("zeros"))) {
        spec->unsaid = has_open_dims(spec); /* it does not say how many zeros */
        return 0;
    }
    if (init->kind != CN_YAML_MAP || (file && caller) ||
        (!file && !caller && !cn_yaml_get(init, "dims")))
        return cn_io_refuse(parse, init, "state: init",
                            "zeros, none, {dims: [...]}, {file: PATH} or {caller: INPUT}");
    if (cn_yaml_get(init, "dims"))
        rc = read_init_dims(parse, init, spec);
    if (!rc && file)
        rc = read_file_name(parse, file, "", spec);
    if (!rc && caller) {
        spec->init = CN_STATE_CALLER;
        rc = cn_io_read_name(parse, init, caller, "state: caller", &spec->init_from);
    }
    return rc;
}

/* Reads Triton's initial_state, a list of one element. zero_data may have any value; only its
 * presence counts. */
static int
read_initial_state(const struct cn_io_parse *parse, const struct cn_yaml *list,
                   struct cn_state_spec *spec)
{
    static const char *const names[] = {"name", NULL};
    static const char *const files[] = {"data_file", "dataFile", NULL};
    static const char *const zeros[] = {"zero_data", "zeroData", NULL};
    const struct cn_yaml *one, *file;
    enum cn_datatype type;
    int rc;

    if (list->kind != CN_YAML_LIST || list->n_items > 1)
        return cn_fail(parse->err, CN_E_CONFIG,
                       "%s:%u:%u: initial_state field for state input '%s' must contain exactly "
                       "one or zero element. Found '%u' elements.",
                       parse->name, list->line, list->column, spec->input.ptr, list->n_items);
    if (list->n_items == 0)
        return 0;
    one = list->items[0];
    if ((rc = cn_io_read_type(parse, one, &type)))
        return rc;
    if (type != spec->type)
        return cn_fail(parse->err, CN_E_CONFIG,
                       "%s:%u:%u: The data type used for 'initial_state' field of state '%s' does "
                       "not match the state data type.",
                       parse->name, one->line, one->column, spec->input.ptr);
    if (!cn_io_get(one, names))
        return cn_fail(parse->err, CN_E_CONFIG,
                       "%s:%u:%u: Field 'name' must be set when using initial_state for state "
                       "input '%s'.",
                       parse->name, one->line, one->column, spec->input.ptr);
    if ((rc = read_init_dims(parse, one, spec)))
        return rc;
    file = cn_io_get(one, files);
    if (!!file == !!cn_io_get(one, zeros))
        return fail_at(parse, one, "initial_state needs zero_data or data_file");
    return file ? read_file_name(parse, file, TRITON_FOLDER, spec) : 0;
}

/* Reads one tensor: its names, type, shape, batch axis and first value. The first value's size is
 * limited here, so that a worker cannot be made to allocate any amount. */
static int
read_state(const struct cn_io_parse *parse, const struct cn_yaml *item, struct cn_state_spec *spec)
{
    static const char *const initials[] = {"initial_state", "initialState", NULL};
    const struct cn_yaml *init = cn_yaml_get(item, "init"), *initial;
    uint64_t elements, bytes;
    int rc;

    *spec = (struct cn_state_spec){0};
    if (item->kind != CN_YAML_MAP)
        return cn_io_refuse(parse, item, "state",
                            "a map with name, dataType and dims for each tensor");
    initial = cn_io_get(item, initials);
    rc = read_names(parse, item, spec);
    if (!rc)
        rc = cn_io_read_type(parse, item, &spec->type);
    if (!rc)
        rc = cn_io_read_dims(parse, item, spec->dims, &spec->rank);
    if (!rc)
        rc = read_axis(parse, item, spec);
    for (uint32_t i = 0; !rc && i < spec->rank; i++)
        spec->init_dims[i] = spec->dims[i] < 0 ? 1 : spec->dims[i];
    spec->unsaid = !init && !initial && has_open_dims(spec);
    if (!rc && init && initial)
        return fail_at(parse, init,
                       "init and initial_state set the same thing; remove one of them");
    if (!rc && init)
        rc = read_init(parse, init, spec);
    if (!rc && initial)
        rc = read_initial_state(parse, initial, spec);
    if (rc)
        return rc;
    if (!cn_shape_elements(spec->init_dims, spec->rank, &elements) ||
        __builtin_mul_overflow(elements,
                               spec->type == CN_DATATYPE_BYTES ? 4 : cn_datatype_bytes(spec->type),
                               &bytes) ||
        bytes > CN_STATE_INITIAL_MAX)
        return cn_io_refuse(parse, item, spec->input.ptr, "an initial state of up to 1 GiB");
    return 0;
}

/* --- together with inputs and outputs --- */

static bool
same_kind(const struct cn_state_spec *spec, const struct cn_tensor_spec *tensor)
{
    if (spec->type != tensor->type || spec->rank != tensor->rank)
        return false;
    for (uint32_t i = 0; i < spec->rank; i++)
        if (spec->dims[i] >= 0 && tensor->dims[i] >= 0 && spec->dims[i] != tensor->dims[i])
            return false;
    return true;
}

/* Compares a state with the model's inputs and outputs: see the head of this file. */
static int
check_state(const struct cn_io_parse *parse, const struct cn_yaml *item, struct cn_state_spec *spec)
{
    const struct cn_model_io *io = parse->io;
    const struct cn_tensor_spec *output = cn_model_io_output(io, spec->output, 0), *given;
    char text[1024];

    if (spec->init == CN_STATE_CALLER) {
        given = cn_model_io_input(io, spec->init_from, 0);
        snprintf(text, sizeof(text),
                 given ? "'%.256s' takes its first value from input '%.256s', which has another "
                         "dataType or other dims"
                       : "'%.256s' takes its first value from input '%.256s', which the model does "
                         "not declare; add it to inputs with optional: true",
                 spec->input.ptr, spec->init_from.ptr);
        if (!given || !same_kind(spec, given))
            return fail_at(parse, item, text);
    }
    if (cn_model_io_input(io, spec->input, 0) &&
        !(spec->init == CN_STATE_CALLER && cn_str_eq(spec->input, spec->init_from))) {
        snprintf(text, sizeof(text),
                 "'%.256s' is also listed under inputs, but clients cannot send a state; remove it "
                 "there, or write init: {caller: %.256s} if the first request may set it",
                 spec->input.ptr, spec->input.ptr);
        return fail_at(parse, item, text);
    }
    spec->visible = output != NULL;
    if (output && !same_kind(spec, output)) {
        snprintf(text, sizeof(text),
                 "'%.256s' is also listed under outputs, with another dataType or other dims",
                 spec->output.ptr);
        return fail_at(parse, item, text);
    }
    return 0;
}

/* Finds the list of state tensors; NULL if none is declared. CN_E_CONFIG if two places declare one.
 */
static int
find_list(const struct cn_io_parse *parse, const struct cn_yaml *root, const struct cn_yaml **out)
{
    const struct cn_yaml *state = cn_yaml_get(root, "state");
    const struct cn_yaml *theirs = cn_yaml_get(cn_io_get(root, batching_keys), "state");

    if (state && state->kind != CN_YAML_LIST)
        state = cn_yaml_get(state, "tensors");
    if (state && theirs)
        return fail_at(parse, theirs, "it is declared twice; remove one of the two lists");
    *out = state ? state : theirs;
    return 0;
}

/* Reads the list, without comparing it with the model's inputs and outputs. */
static int
read_list(const struct cn_io_parse *parse, const struct cn_yaml *list)
{
    struct cn_state_specs *specs = &parse->io->state;
    char text[CN_YAML_SHOWN_MAX + 64], shown[CN_YAML_SHOWN_MAX];
    int rc;

    if (list->kind != CN_YAML_LIST || list->n_items > CN_MODEL_TENSORS_MAX)
        return cn_io_refuse(parse, list, "state", "a list of up to 256 tensors");
    specs->items = cn_arena_alloc(&parse->io->arena, sizeof(*specs->items) * list->n_items);
    for (uint32_t i = 0; i < list->n_items; i++) {
        struct cn_state_spec *spec = &specs->items[i];

        if ((rc = read_state(parse, list->items[i], spec)))
            return rc;
        if (cn_state_of_input(specs, spec->input) || cn_state_of_output(specs, spec->output)) {
            snprintf(
                text, sizeof(text), "two tensors are named %s",
                cn_yaml_shown(cn_state_of_input(specs, spec->input) ? spec->input : spec->output,
                              shown));
            return fail_at(parse, list->items[i], text);
        }
        specs->n = i + 1;
    }
    return 0;
}

int
cn_model_state_parse(const struct cn_io_parse *parse, const struct cn_yaml *root)
{
    struct cn_state_specs *specs = &parse->io->state;
    const struct cn_yaml *list;
    int rc = find_list(parse, root, &list);

    if (rc || !list || (list->kind == CN_YAML_LIST && list->n_items == 0))
        return rc;
    specs->batched = parse->io->max_batch_size > 0;
    rc = read_list(parse, list);
    for (uint32_t i = 0; !rc && i < specs->n; i++)
        rc = check_state(parse, list->items[i], &specs->items[i]);
    return rc;
}

/* Are two declarations equal in what the v2 protocol can say? It has no words for a batch axis, nor
 * for an input that gives the first value. */
static bool
looks_as(const struct cn_state_spec *spec, const struct cn_state_spec *shown)
{
    const struct cn_str folder = CN_STR(TRITON_FOLDER);
    struct cn_str file = shown->init_from;
    size_t dims = spec->rank * sizeof(spec->dims[0]);

    if (!cn_str_eq(spec->input, shown->input) || !cn_str_eq(spec->output, shown->output) ||
        spec->type != shown->type || spec->rank != shown->rank ||
        memcmp(spec->dims, shown->dims, dims) != 0 ||
        memcmp(spec->init_dims, shown->init_dims, dims) != 0 ||
        (spec->init == CN_STATE_FILE) != (shown->init == CN_STATE_FILE))
        return false;
    if (spec->init != CN_STATE_FILE || cn_str_eq(spec->init_from, file))
        return true;
    return file.len > folder.len && memcmp(file.ptr, folder.ptr, folder.len) == 0 &&
           cn_str_eq(spec->init_from,
                     (struct cn_str){file.ptr + folder.len, file.len - folder.len});
}

/* Both lists are read into an arena that is dropped afterwards. */
int
cn_model_state_compare(const struct cn_yaml_doc *below, const struct cn_yaml_doc *above,
                       enum cn_state_overlay *out, struct cn_error *err)
{
    const struct cn_yaml_doc *docs[2] = {below, above};
    struct cn_model_io io[2];
    const struct cn_yaml *lists[2] = {NULL, NULL};
    int rc = 0;

    for (int i = 0; i < 2; i++) {
        struct cn_io_parse parse = {.io = &io[i], .err = err};

        io[i] = (struct cn_model_io){.n_inputs = 0};
        cn_arena_init(&io[i].arena);
        parse.name = docs[i] ? cn_yaml_name(docs[i]) : "";
        if (!rc && docs[i])
            rc = find_list(&parse, cn_yaml_root(docs[i]), &lists[i]);
        if (!rc && lists[i])
            rc = read_list(&parse, lists[i]);
    }
    *out = CN_STATE_OVERLAY_NONE;
    if (!rc && lists[1]) {
        *out = io[0].state.n == io[1].state.n ? CN_STATE_OVERLAY_SAME : CN_STATE_OVERLAY_OTHER;
        for (uint32_t i = 0; *out == CN_STATE_OVERLAY_SAME && i < io[0].state.n; i++)
            if (!looks_as(&io[0].state.items[i], &io[1].state.items[i]))
                *out = CN_STATE_OVERLAY_OTHER;
    }
    for (int i = 0; i < 2; i++)
        cn_arena_fini(&io[i].arena);
    return rc;
}

int
cn_model_state_without_inputs(const struct cn_io_parse *parse, const struct cn_yaml *root)
{
    const struct cn_yaml *list;
    int rc = find_list(parse, root, &list);

    if (rc || !list || (list->kind == CN_YAML_LIST && list->n_items == 0))
        return rc;
    return fail_at(parse, list, "a model with state tensors also needs inputs and outputs");
}

bool
cn_model_state_owns(const char *prefix, const struct cn_yaml *value)
{
    if (prefix[0] == '\0')
        return value->kind == CN_YAML_LIST && cn_str_eq(value->key, CN_STR("state"));
    return strcmp(prefix, "state.") == 0 && cn_str_eq(value->key, CN_STR("tensors"));
}

/* --- files --- */

static int
read_all(int fd, const struct cn_state_spec *spec, struct cn_buf *out, struct cn_error *err)
{
    ssize_t n = 1;

    while (n > 0 && out->len <= CN_STATE_INITIAL_MAX) {
        char *at = cn_buf_reserve(out, READ_BYTES);

        if (!at)
            return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for the initial state in %s",
                           spec->init_from.ptr);
        n = read(fd, at, READ_BYTES);
        out->len += n > 0 ? (size_t)n : 0;
    }
    if (n < 0)
        return cn_fail(err, CN_E_CONFIG, "state '%s': cannot read the file %s", spec->input.ptr,
                       spec->init_from.ptr);
    return 0;
}

int
cn_model_state_read_file(const struct cn_state_spec *spec, const char *dir, struct cn_buf *out,
                         struct cn_error *err)
{
    char path[PATH_MAX_BYTES * 4];
    struct cn_tensor tensor;
    struct cn_error why;
    struct stat info;
    int fd, rc;

    snprintf(path, sizeof(path), "%s/%s", dir, spec->init_from.ptr);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe must not block */
    if (fd < 0 || fstat(fd, &info) < 0 || !S_ISREG(info.st_mode)) {
        if (fd >= 0)
            close(fd);
        return cn_fail(
            err, CN_E_CONFIG,
            "state '%s' takes its first value from the file %s, which is not in the archive",
            spec->input.ptr, spec->init_from.ptr);
    }
    rc = read_all(fd, spec, out, err);
    close(fd);
    if (rc == 0 && cn_state_initial(spec, cn_buf_str(out), NULL, &tensor, &why) != 0)
        rc = cn_fail(err, CN_E_CONFIG, "state: %s", why.message);
    return rc;
}

int
cn_model_state_check_files(const struct cn_model_io *io, const char *dir, struct cn_error *err)
{
    struct cn_buf bytes;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < io->state.n; i++) {
        if (io->state.items[i].init != CN_STATE_FILE)
            continue;
        cn_buf_init(&bytes, 0);
        rc = cn_model_state_read_file(&io->state.items[i], dir, &bytes, err);
        cn_buf_fini(&bytes);
    }
    return rc;
}
