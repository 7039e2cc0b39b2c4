/* handlers/c/c_stack.c - a batch's rows as one tensor, for handlers in C. Worker's thread.
 *
 * A handler that computes on the whole batch wants one tensor [rows, ...] instead of one for each
 * item. continuo_stack copies the items' inputs behind each other; the result lies in the arena of
 * the first item and is valid until run() returns. continuo_reply_stack goes the other way and
 * gives each item as many rows of each output as its first input has. If the numbers of rows do not
 * add up, an item fails, because otherwise an item would get rows of another one's answer.
 */
#include <string.h>

#include "handlers/c/c_priv.h"
#include "proto/tensor.h"

static struct cn_tensor
ours(const struct continuo_tensor *theirs)
{
    struct cn_tensor tensor = {.name = {theirs->name.data, theirs->name.len},
                               .type = (enum cn_datatype)theirs->datatype,
                               .rank = (uint32_t)theirs->rank,
                               .data = {theirs->data.data, theirs->data.len}};

    if (theirs->rank && theirs->rank <= CN_TENSOR_RANK_MAX)
        memcpy(tensor.shape, theirs->shape, sizeof(tensor.shape[0]) * theirs->rank);
    return tensor;
}

static struct continuo_tensor
theirs(const struct cn_tensor *tensor)
{
    return (struct continuo_tensor){
        .name = {tensor->name.ptr, tensor->name.len},
        .datatype = (enum continuo_datatype)tensor->type,
        .rank = tensor->rank,
        .shape = tensor->shape,
        .data = {tensor->data.ptr ? tensor->data.ptr : "", tensor->data.len}};
}

const struct continuo_tensor *
cn_c_stack(struct continuo_item *const *handles, size_t n, const char *name)
{
    struct c_item *first = cn_c_item(handles[0]);
    struct continuo_tensor *out = cn_arena_alloc(&first->arena, sizeof(*out));
    struct cn_tensor *all = cn_arena_alloc(&first->arena, sizeof(*all));
    size_t bytes = 0, at = 0;
    char *data;

    *all = (struct cn_tensor){.type = CN_DATATYPE_NONE};
    for (size_t i = 0; i < n; i++) {
        const struct continuo_tensor *part = cn_c_tensor(handles[i], name);
        struct cn_tensor row;

        if (!part)
            return NULL;
        row = ours(part);
        if (!cn_tensor_stack(all, &row, first->rt->batched))
            return NULL;
        bytes += part->data.len;
    }
    data = cn_arena_try_alloc(&first->arena, bytes ? bytes : 1);
    if (!data) {
        cn_c_fail(first, "not enough memory for the stacked tensors of a batch");
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        const struct continuo_tensor *part = cn_c_tensor(handles[i], name);

        if (part->data.len)
            memcpy(data + at, part->data.data, part->data.len);
        at += part->data.len;
    }
    all->data = (struct cn_str){data, bytes};
    *out = theirs(all);
    return out;
}

/* Returns how many rows of a stack belong to the item: as many as its first tensor has. */
static uint64_t
rows_of(struct continuo_item *handle, bool batched)
{
    const struct continuo_tensor *first = cn_c_tensor_at(handle, 0);

    return batched && first && first->rank ? (uint64_t)first->shape[0] : 1;
}

/* Answers the item with its rows of each tensor. Returns -1, and fails the item, when there are too
 * few. */
static int
reply_rows(struct continuo_item *handle, struct cn_tensor *rest, size_t n_tensors)
{
    struct c_item *item = cn_c_item(handle);
    struct continuo_tensor *parts =
        cn_arena_alloc(&item->arena, sizeof(*parts) * (n_tensors ? n_tensors : 1));
    struct cn_tensor *rows =
        cn_arena_alloc(&item->arena, sizeof(*rows) * (n_tensors ? n_tensors : 1));
    const bool batched = item->rt->batched;

    for (size_t i = 0; i < n_tensors; i++) {
        if (!cn_tensor_take(&rest[i], rows_of(handle, batched), batched, &rows[i])) {
            cn_c_fail(item,
                      "continuo_reply_stack: a tensor has fewer rows than the items together");
            return -1;
        }
        parts[i] = theirs(&rows[i]);
    }
    return cn_c_reply_tensors(handle, parts, n_tensors, sizeof(*parts));
}

int
cn_c_reply_stack(struct continuo_item *const *handles, size_t n,
                 const struct continuo_tensor *tensors, size_t n_tensors, size_t tensor_bytes)
{
    struct c_item *first = cn_c_item(handles[0]);
    struct cn_tensor *rest;
    const char *at = (const char *)tensors;
    struct cn_error err;
    int rc = 0;

    if (n_tensors > CN_TENSORS_MAX) {
        cn_c_fail(first, "continuo_reply_stack: too many tensors in one answer");
        return -1;
    }
    rest = cn_arena_alloc(&first->arena, sizeof(*rest) * (n_tensors ? n_tensors : 1));
    for (size_t i = 0; i < n_tensors; i++, at += tensor_bytes) {
        struct continuo_tensor tensor = {0};

        memcpy(&tensor, at, tensor_bytes < sizeof(tensor) ? tensor_bytes : sizeof(tensor));
        rest[i] = ours(&tensor);
        if (tensor.rank == 0 || tensor.rank > CN_TENSOR_RANK_MAX ||
            cn_tensor_check(&rest[i], &err)) {
            cn_c_fail(first, "continuo_reply_stack: a tensor's data does not fit its shape");
            return -1;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (reply_rows(handles[i], rest, n_tensors) < 0)
            rc = -1;
    for (size_t i = 0; i < n_tensors; i++)
        rc = rest[i].shape[0] == 0 ? rc : -1;
    if (rc < 0 && !first->item->reply.error_code)
        cn_c_fail(first,
                  "continuo_reply_stack: the tensors have more rows than the items together");
    return rc;
}
