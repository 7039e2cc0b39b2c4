/* handlers/c/c_tensor.c - typed tensors of a request and of a reply, for handlers in C. Worker's
 * thread.
 *
 * A tensor's bytes stay where the row has them; only those that are not aligned for their type are
 * copied, since a handler reads them as an array.
 */
#include <stdio.h>
#include <string.h>

#include "handlers/c/c_priv.h"
#include "handlers/reply.h"
#include "proto/tensor.h"

#define CN_DATATYPE(name, number, word, config_word, bytes)                                        \
    _Static_assert((int)CONTINUO_##name == (int)CN_DATATYPE_##name, "one number on both sides");
#include "proto/datatypes.def"
#undef CN_DATATYPE

static struct continuo_bytes
bytes_of(struct cn_str text)
{
    return (struct continuo_bytes){text.ptr ? text.ptr : "", text.len};
}

/* Copies the data of a tensor if it is not aligned for its type. Returns false when there is no
 * memory for the copy. */
static bool
align(struct cn_arena *arena, struct cn_tensor *tensor)
{
    const unsigned bytes = cn_datatype_bytes(tensor->type);
    char *copy;

    if (bytes < 2 || tensor->data.len == 0 || (uintptr_t)tensor->data.ptr % bytes == 0)
        return true;
    copy = cn_arena_try_alloc(arena, tensor->data.len);
    if (!copy)
        return false;
    memcpy(copy, tensor->data.ptr, tensor->data.len);
    tensor->data.ptr = copy;
    return true;
}

static bool
add_tensor(struct c_item *item, struct cn_tensor *tensor)
{
    int64_t *shape = cn_arena_alloc(&item->arena, sizeof(tensor->shape));

    if (!align(&item->arena, tensor)) {
        cn_c_fail(item, "not enough memory for a tensor of the request");
        return false;
    }
    memcpy(shape, tensor->shape, sizeof(tensor->shape));
    item->tensors[item->n_tensors++] =
        (struct continuo_tensor){.name = bytes_of(tensor->name),
                                 .datatype = (enum continuo_datatype)tensor->type,
                                 .rank = tensor->rank,
                                 .shape = shape,
                                 .data = bytes_of(tensor->data)};
    return true;
}

/* Finds the tensors among the item's parts, once. A part that looks like a tensor but does not fit
 * its own shape is left out: clients of a model without declared inputs may send any content type.
 */
static struct c_item *
with_tensors(struct continuo_item *handle)
{
    struct c_item *item = cn_c_item(handle);
    const struct cn_row *row = item->item->row;
    struct cn_tensor tensor;
    struct cn_error err;

    if (item->tensors)
        return item;
    item->tensors =
        cn_arena_alloc(&item->arena, sizeof(*item->tensors) * (row->n_parts ? row->n_parts : 1));
    for (uint32_t i = 0; i < row->n_parts; i++)
        if (cn_tensor_of_part(&row->parts[i], &tensor) && cn_tensor_check(&tensor, &err) == 0 &&
            !add_tensor(item, &tensor))
            break;
    return item;
}

size_t
cn_c_tensor_count(struct continuo_item *handle)
{
    return with_tensors(handle)->n_tensors;
}

const struct continuo_tensor *
cn_c_tensor_at(struct continuo_item *handle, size_t index)
{
    const struct c_item *item = with_tensors(handle);

    return index < item->n_tensors ? &item->tensors[index] : NULL;
}

const struct continuo_tensor *
cn_c_tensor(struct continuo_item *handle, const char *name)
{
    const struct c_item *item = with_tensors(handle);
    const size_t len = strlen(name);

    for (size_t i = 0; i < item->n_tensors; i++)
        if (item->tensors[i].name.len == len && memcmp(item->tensors[i].name.data, name, len) == 0)
            return &item->tensors[i];
    return NULL;
}

static int
put_tensor(struct c_item *item, const struct continuo_tensor *theirs)
{
    struct cn_tensor tensor = {.name = {theirs->name.data, theirs->name.len},
                               .type = (enum cn_datatype)theirs->datatype,
                               .rank = (uint32_t)theirs->rank,
                               .data = {theirs->data.data, theirs->data.len}};
    struct cn_error err;
    char text[200];

    if (theirs->rank > CN_TENSOR_RANK_MAX || theirs->name.len > UINT16_MAX) {
        snprintf(text, sizeof(text),
                 "continuo_reply_tensors: a tensor of rank %zu and a name of %zu bytes; the limits "
                 "are %d and %d",
                 theirs->rank, theirs->name.len, CN_TENSOR_RANK_MAX, UINT16_MAX);
        cn_c_fail(item, text);
        return -1;
    }
    if (theirs->rank)
        memcpy(tensor.shape, theirs->shape, sizeof(tensor.shape[0]) * theirs->rank);
    if (cn_tensor_check(&tensor, &err)) {
        cn_c_fail(item, err.message);
        return -1;
    }
    cn_tensors_put_one(&item->item->reply.body, &tensor);
    return 0;
}

/* Packs the set into the reply's body, which is empty. */
static int
put_tensors(struct c_item *item, const struct continuo_tensor *tensors, size_t n,
            size_t tensor_bytes)
{
    struct cn_reply *reply = &item->item->reply;
    const char *at = (const char *)tensors;
    struct continuo_tensor tensor = {0};
    struct cn_error err;
    int rc = 0;

    if (n > CN_TENSORS_MAX) {
        cn_c_fail(item, "too many tensors in one answer");
        return -1;
    }
    if (!reply->head_out && reply->n_chunks == 0)
        rc = cn_reply_set_content_type(reply, CN_STR(CN_TENSORS_TYPE), &err);
    if (!rc) {
        cn_write_u32(&reply->body, (uint32_t)n);
        for (size_t i = 0; i < n; i++, at += tensor_bytes) {
            memcpy(&tensor, at, tensor_bytes < sizeof(tensor) ? tensor_bytes : sizeof(tensor));
            if (put_tensor(item, &tensor) < 0)
                return -1;
        }
        rc = cn_reply_check_body(reply, &err);
    }
    if (rc)
        cn_c_fail(item, err.message);
    return rc ? -1 : 0;
}

int
cn_c_reply_tensors(struct continuo_item *handle, const struct continuo_tensor *tensors, size_t n,
                   size_t tensor_bytes)
{
    struct c_item *item = cn_c_item(handle);

    if (cn_c_open_answer(item) < 0)
        return -1;
    item->answered = true;
    return put_tensors(item, tensors, n, tensor_bytes);
}

int
cn_c_respond(struct continuo_item *handle, const struct continuo_tensor *tensors, size_t n,
             size_t tensor_bytes)
{
    struct c_item *item = cn_c_item(handle);
    struct cn_error err;

    if (cn_c_open_answer(item) < 0 || put_tensors(item, tensors, n, tensor_bytes) < 0)
        return -1;
    if (cn_reply_body_to_chunk(&item->item->reply, &err) == 0)
        return 0;
    cn_c_fail(item, err.message);
    return -1;
}
