/* proto/state_tensors.c - declared state: its first value, the check of a value against the
 * declaration, and its bytes in the store. Any thread.
 *
 * The store outlives the model's YAML: an operator may change a declaration and load the model
 * again over sequences that an older declaration wrote. Nothing in the bytes is therefore trusted
 * to fit. cn_state_unpack assigns tensors by name, not by position, so that reordering the
 * declaration is harmless; a tensor that is missing, unknown or of another type or shape makes the
 * step fail with a message that names it, and the record stays as it was. A dimension declared as
 * -1 fits any size.
 */
#include "proto/state_tensors.h"

#include <inttypes.h>
#include <string.h>

const struct cn_state_spec *
cn_state_of_input(const struct cn_state_specs *specs, struct cn_str name)
{
    for (uint32_t i = 0; i < specs->n; i++)
        if (cn_str_eq(specs->items[i].input, name))
            return &specs->items[i];
    return NULL;
}

const struct cn_state_spec *
cn_state_of_output(const struct cn_state_specs *specs, struct cn_str name)
{
    for (uint32_t i = 0; i < specs->n; i++)
        if (cn_str_eq(specs->items[i].output, name))
            return &specs->items[i];
    return NULL;
}

/* --- none --- */

struct cn_tensor
cn_state_none(const struct cn_state_spec *spec)
{
    return (struct cn_tensor){
        .name = spec->input, .type = spec->type, .rank = CN_TENSOR_RANK_MAX, .data = CN_STR("")};
}

bool
cn_state_is_none(const struct cn_tensor *tensor)
{
    return tensor->rank == CN_TENSOR_RANK_MAX && tensor->shape[0] == 0;
}

/* --- how it begins --- */

/* The smallest encoding of an element. An element of BYTES has at least its 4 bytes of length. */
static unsigned
least_bytes(enum cn_datatype type)
{
    return type == CN_DATATYPE_BYTES ? 4 : cn_datatype_bytes(type);
}

int
cn_state_initial(const struct cn_state_spec *spec, struct cn_str bytes, struct cn_arena *arena,
                 struct cn_tensor *out, struct cn_error *err)
{
    uint64_t elements = 0, len;
    struct cn_error why;
    char *zeros;

    *out = (struct cn_tensor){.name = spec->input, .type = spec->type, .rank = spec->rank};
    memcpy(out->shape, spec->init_dims, sizeof(out->shape[0]) * spec->rank);
    if (spec->init == CN_STATE_NONE) {
        *out = cn_state_none(spec);
        return 0;
    }
    if (spec->init == CN_STATE_FILE) {
        out->data = bytes;
        if (cn_tensor_check(out, &why))
            return cn_fail(err, CN_E_CONFIG, "the file %s is not an initial state: %s",
                           spec->init_from.ptr, why.message);
        return 0;
    }
    if (!cn_shape_elements(out->shape, out->rank, &elements) ||
        __builtin_mul_overflow(elements, least_bytes(spec->type), &len) || len > SIZE_MAX / 2 ||
        !(zeros = cn_arena_try_alloc(arena, len ? (size_t)len : 1)))
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for the initial state %s",
                       spec->input.ptr);
    memset(zeros, 0, (size_t)len); /* of BYTES: strings of length 0 */
    out->data = (struct cn_str){zeros, (size_t)len};
    return 0;
}

/* --- rows --- */

void
cn_state_to_row(const struct cn_state_specs *specs, const struct cn_state_spec *spec,
                struct cn_tensor *tensor)
{
    const uint32_t axis = spec->batch_axis;

    if (!specs->batched)
        return;
    memmove(tensor->shape + axis + 1, tensor->shape + axis,
            sizeof(tensor->shape[0]) * (tensor->rank - axis));
    tensor->shape[axis] = 1;
    tensor->rank++;
}

/* Writes the shape as text, "[2,-1]", cut off at the buffer's end. */
static const char *
shape_text(const int64_t *shape, uint32_t rank, char out[128])
{
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    cn_buf_puts(&buf, "[");
    for (uint32_t i = 0; i < rank; i++)
        cn_buf_printf(&buf, "%s%" PRId64, i ? "," : "", shape[i]);
    cn_buf_puts(&buf, "]");
    memcpy(out, buf.data, buf.len < 127 ? buf.len : 127);
    out[buf.len < 127 ? buf.len : 127] = '\0';
    cn_buf_fini(&buf);
    return out;
}

static bool
fits(const struct cn_state_spec *spec, const struct cn_tensor *tensor)
{
    if (tensor->type == spec->type && spec->init == CN_STATE_NONE && cn_state_is_none(tensor))
        return true;
    if (tensor->type != spec->type || tensor->rank != spec->rank)
        return false;
    for (uint32_t i = 0; i < spec->rank; i++)
        if (spec->dims[i] >= 0 && tensor->shape[i] != spec->dims[i])
            return false;
    return true;
}

int
cn_state_from_row(const struct cn_state_specs *specs, const struct cn_state_spec *spec,
                  const struct cn_tensor *tensor, const char *who, int code, struct cn_tensor *out,
                  struct cn_error *err)
{
    struct cn_tensor declared = {.rank = spec->rank};
    const uint32_t axis = spec->batch_axis;
    char has[128], wants[128];

    *out = *tensor;
    out->name = spec->input;
    if (specs->batched && tensor->rank == spec->rank + 1 && tensor->shape[axis] == 1) {
        memmove(out->shape + axis, out->shape + axis + 1,
                sizeof(out->shape[0]) * (spec->rank - axis));
        out->rank--;
    }
    /* A tensor without the batch dimension fits only a model that has none. */
    if (fits(spec, out) && out->rank + specs->batched == tensor->rank)
        return 0;
    memcpy(declared.shape, spec->dims, sizeof(spec->dims));
    cn_state_to_row(specs, spec, &declared);
    return cn_fail(err, code, "%s '%.*s' is %s%s; the model declares %s%s%s", who,
                   CN_STR_ARG(tensor->name), cn_datatype_word(tensor->type),
                   shape_text(tensor->shape, tensor->rank, has), cn_datatype_word(spec->type),
                   shape_text(declared.shape, declared.rank, wants),
                   specs->batched ? ", including the batch dimension" : "");
}

/* --- bytes --- */

void
cn_state_pack_begin(const struct cn_state_specs *specs, struct cn_buf *out)
{
    cn_write_u32(out, CN_STATE_TENSORS_MAGIC);
    cn_write_u16(out, CN_STATE_TENSORS_VERSION);
    cn_write_u16(out, 0);
    cn_write_u32(out, specs->n);
}

void
cn_state_pack(const struct cn_state_specs *specs, const struct cn_tensor *tensors,
              struct cn_buf *out)
{
    cn_state_pack_begin(specs, out);
    for (uint32_t i = 0; i < specs->n; i++) {
        struct cn_tensor tensor = tensors[i];

        tensor.name = specs->items[i].input;
        cn_tensors_put_one(out, &tensor);
    }
}

/* Checks one stored tensor and puts it into its place in `out`. */
static int
take(const struct cn_state_specs *specs, const struct cn_tensor *tensor, struct cn_tensor *out,
     struct cn_error *err)
{
    const struct cn_state_spec *spec = cn_state_of_input(specs, tensor->name);
    char has[128], wants[128];

    if (!spec)
        return cn_fail(err, CN_E_STATE_STORE,
                       "the stored state has a tensor '%.*s' that the model does not declare: "
                       "another version of the model wrote it",
                       CN_STR_ARG(tensor->name));
    if (!fits(spec, tensor))
        return cn_fail(err, CN_E_STATE_STORE,
                       "the stored state '%s' is %s%s, but the model declares %s%s: another "
                       "version of the model wrote it",
                       spec->input.ptr, cn_datatype_word(tensor->type),
                       shape_text(tensor->shape, tensor->rank, has), cn_datatype_word(spec->type),
                       shape_text(spec->dims, spec->rank, wants));
    if (out[spec - specs->items].name.ptr)
        return cn_fail(err, CN_E_STATE_STORE, "the stored state has the tensor '%s' twice",
                       spec->input.ptr);
    out[spec - specs->items] = *tensor;
    return 0;
}

int
cn_state_unpack(const struct cn_state_specs *specs, struct cn_str bytes, struct cn_arena *arena,
                struct cn_tensor *out, struct cn_error *err)
{
    struct cn_tensor *tensors;
    struct cn_reader reader;
    struct cn_error why;
    unsigned version, zero;
    uint32_t n;
    int rc;

    cn_reader_init(&reader, bytes.ptr, bytes.len);
    if (cn_read_u32(&reader) != CN_STATE_TENSORS_MAGIC)
        return cn_fail(err, CN_E_STATE_STORE,
                       "the stored state (%zu bytes) does not hold the tensors that the model "
                       "declares: a handler that kept its state itself wrote it",
                       bytes.len);
    version = cn_read_u16(&reader);
    zero = cn_read_u16(&reader);
    if (reader.bad || version != CN_STATE_TENSORS_VERSION || zero)
        return cn_fail(err, CN_E_STATE_STORE,
                       "the stored state tensors have format %u; this program reads format %d",
                       version, CN_STATE_TENSORS_VERSION);
    if (cn_tensors_get(cn_read_bytes(&reader, cn_reader_left(&reader)), arena, &tensors, &n, &why))
        return cn_fail(err, CN_E_STATE_STORE, "damaged state: %s", why.message);
    memset(out, 0, sizeof(*out) * specs->n);
    for (uint32_t i = 0; i < n; i++)
        if ((rc = take(specs, &tensors[i], out, err)))
            return rc;
    for (uint32_t i = 0; i < specs->n; i++)
        if (!out[i].name.ptr)
            return cn_fail(err, CN_E_STATE_STORE,
                           "the stored state lacks the tensor '%s' that the model declares: "
                           "another version of the model wrote it",
                           specs->items[i].input.ptr);
    return 0;
}
