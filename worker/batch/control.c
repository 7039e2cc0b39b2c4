/* worker/batch/control.c - makes control tensors. Worker's one thread.
 *
 * The worker makes them and not the server, because only the look-up in the store shows whether a
 * row opens its sequence: a plain step may begin a new one. So the START control says what really
 * happened, also when the client sent no start flag.
 */
#include "worker/batch/control.h"

#include <string.h>

#include "config/model/batching.h"
#include "core/memory/buf.h"
#include "proto/wire.h"

/* Reads the digits of an integer id, which may have its owner before them ("NAME/"). Returns false
 * when the id is a text. */
static bool
read_number(struct cn_str id, uint64_t *out)
{
    if (id.len < 2 || id.ptr[0] != CN_SEQUENCE_NUMBER)
        return false;
    *out = 0;
    for (size_t i = 1; i < id.len; i++)
        *out = id.ptr[i] == '/' ? 0 : *out * 10 + (uint64_t)(id.ptr[i] - '0');
    return true;
}

/* Writes the id in the control's datatype. An integer that is too large for it loses its upper
 * bytes. */
static int
put_id(const struct cn_control *control, struct cn_str id, struct cn_buf *out, struct cn_error *err)
{
    bool wants_text = control->type == CN_DATATYPE_BYTES;
    uint64_t number;

    if (read_number(id, &number) == wants_text)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "sequence batching control '%.*s' is %s, so the sequence id must be %s",
                       CN_STR_ARG(control->name), cn_datatype_word(control->type),
                       wants_text ? "a text" : "an integer");
    if (wants_text)
        cn_write_str32(out, id);
    else
        cn_buf_append(out, &number, cn_datatype_bytes(control->type)); /* little-endian here */
    return 0;
}

static int
fill(const struct cn_control *control, const struct cn_row *row, bool starts,
     struct cn_arena *arena, struct cn_tensor *out, struct cn_error *err)
{
    bool says = true;
    struct cn_buf bytes;
    int rc;

    if (control->kind != CN_CONTROL_SEQUENCE_CORRID) {
        if (control->kind == CN_CONTROL_SEQUENCE_START)
            says = starts;
        else if (control->kind == CN_CONTROL_SEQUENCE_END)
            says = row->flags & CN_ROW_END;
        out->data =
            (struct cn_str){(const char *)control->bytes[says], cn_datatype_bytes(control->type)};
        return 0;
    }
    cn_buf_init(&bytes, 0);
    rc = put_id(control, row->sequence_id, &bytes, err);
    if (!rc)
        out->data = cn_arena_str(arena, cn_buf_str(&bytes));
    cn_buf_fini(&bytes);
    return rc;
}

/* Fills the control tensor of a place without a row: false, and the id 0 or the empty text. */
static int
fill_no(const struct cn_control *control, struct cn_tensor *out)
{
    static const char zeros[8];
    unsigned bytes = cn_datatype_bytes(control->type);

    out->data = control->kind == CN_CONTROL_SEQUENCE_CORRID
                    ? (struct cn_str){zeros, bytes ? bytes : 4}
                    : (struct cn_str){(const char *)control->bytes[0], bytes};
    return 0;
}

static const struct cn_row *
add_controls(const struct cn_model_io *io, const struct cn_row *row, bool starts, bool pads,
             struct cn_arena *arena, struct cn_error *err)
{
    const struct cn_batching *batching = io ? io->batching : NULL;
    struct cn_row *more;

    if (!batching || batching->n_controls == 0)
        return row;
    more = cn_arena_alloc(arena, sizeof(*more));
    *more = *row;
    more->parts =
        cn_arena_alloc(arena, sizeof(*row->parts) * (row->n_parts + (size_t)batching->n_controls));
    if (row->n_parts)
        memcpy(more->parts, row->parts, sizeof(*row->parts) * row->n_parts);
    for (uint32_t i = 0; i < batching->n_controls; i++) {
        const struct cn_control *control = &batching->controls[i];
        struct cn_tensor tensor = {.name = control->name,
                                   .type = control->type,
                                   .rank = io->max_batch_size ? 2 : 1,
                                   .shape = {1, 1}};
        int rc = pads ? fill_no(control, &tensor) : fill(control, row, starts, arena, &tensor, err);

        if (rc)
            return NULL;
        more->parts[more->n_parts++] = cn_tensor_part(&tensor, arena);
    }
    return more;
}

const struct cn_row *
cn_controls_add(const struct cn_model_io *io, const struct cn_row *row, bool starts,
                struct cn_arena *arena, struct cn_error *err)
{
    return add_controls(io, row, starts, false, arena, err);
}

const struct cn_row *
cn_controls_pad(const struct cn_model_io *io, const struct cn_row *like, struct cn_arena *arena)
{
    struct cn_row *row = cn_arena_alloc(arena, sizeof(*row));
    size_t bytes = 1;
    char *zeros;

    *row = (struct cn_row){.flags = CN_ROW_PAD};
    row->parts = cn_arena_alloc(arena, sizeof(*row->parts) * (like->n_parts ? like->n_parts : 1));
    for (uint32_t i = 0; i < like->n_parts; i++)
        bytes = like->parts[i].data.len > bytes ? like->parts[i].data.len : bytes;
    /* one block of zeros serves all parts, because nobody writes to it */
    zeros = cn_arena_try_alloc(arena, bytes);
    if (!zeros)
        return NULL;
    memset(zeros, 0, bytes);
    for (uint32_t i = 0; i < like->n_parts; i++) {
        struct cn_tensor tensor;
        uint64_t elements;

        if (!cn_tensor_of_part(&like->parts[i], &tensor))
            continue;
        row->parts[row->n_parts] = like->parts[i];
        row->parts[row->n_parts].data.ptr = zeros;
        if (tensor.type == CN_DATATYPE_BYTES && /* an empty string is its length */
            cn_shape_elements(tensor.shape, tensor.rank, &elements))
            row->parts[row->n_parts].data.len = (size_t)elements * 4;
        row->n_parts++;
    }
    return add_controls(io, row, false, true, arena, NULL);
}
