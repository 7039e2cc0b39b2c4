/* kserve/classify.c - finds the largest values of an output. Any thread.
 *
 * Usually few classes of many values are wanted, for example 3 of 1000, and this runs on a loop. So
 * the values are not all sorted. The first `classes` values form a heap whose root is the smallest
 * of them. Each further value that is larger than the root takes its place. At the end only the
 * heap is sorted.
 */
#include "kserve/classify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kserve/infer_answer.h"

/* long double holds every 64-bit integer and every double. */
struct class {
    long double value;
    uint32_t index;
};

/* Orders the largest first, and the lower index first among equals; NaN comes last. */
static int
compare(const void *left, const void *right)
{
    const struct class *a = left, *b = right;

    if (isnan(a->value) != isnan(b->value))
        return isnan(a->value) ? 1 : -1;
    if (!isnan(a->value) && a->value != b->value)
        return a->value > b->value ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static int
compare_upwards(const void *left, const void *right)
{
    return compare(right, left);
}

/* Reads an element. Integers are read little-endian, and signed ones are extended by two shifts. */
static long double
value_at(enum cn_datatype type, const char *at)
{
    const unsigned bytes = cn_datatype_bytes(type);
    uint64_t natural = 0;
    double wide;
    float narrow;

    switch (type) {
    case CN_DATATYPE_FP32:
        memcpy(&narrow, at, sizeof(narrow));
        return (long double)narrow;
    case CN_DATATYPE_FP64:
        memcpy(&wide, at, sizeof(wide));
        return (long double)wide;
    case CN_DATATYPE_INT8:
    case CN_DATATYPE_INT16:
    case CN_DATATYPE_INT32:
    case CN_DATATYPE_INT64:
        memcpy(&natural, at, bytes);
        return (long double)((int64_t)(natural << (64 - 8 * bytes)) >> (64 - 8 * bytes));
    default:
        memcpy(&natural, at, bytes);
        return (long double)natural;
    }
}

static void
write_class(const struct cn_tensor *tensor, const struct class *class, struct cn_buf *out)
{
    const bool fraction = tensor->type == CN_DATATYPE_FP32 || tensor->type == CN_DATATYPE_FP64;
    char text[512]; /* the largest double has 309 digits before the point */
    int len = snprintf(text, sizeof(text), fraction ? "%.6Lf:%u" : "%.0Lf:%u", class->value,
                       (unsigned)class->index);

    cn_write_str32(out, (struct cn_str){text, (size_t)len});
}

/* Puts `class` into a heap of `n` whose root is free. The root is the element that comes last in
 * the order. */
static void
sink(struct class *heap, uint64_t n, struct class class)
{
    uint64_t at = 0, below;

    while ((below = 2 * at + 1) < n) {
        if (below + 1 < n && compare(&heap[below + 1], &heap[below]) > 0)
            below++;
        if (compare(&heap[below], &class) < 0)
            break;
        heap[at] = heap[below];
        at = below;
    }
    heap[at] = class;
}

/* Writes the `classes` largest (at least one) of the elements from `first` on. */
static void
write_row(const struct cn_tensor *tensor, uint64_t first, uint64_t elements, uint64_t classes,
          struct class *heap, struct cn_buf *out)
{
    const unsigned bytes = cn_datatype_bytes(tensor->type);

    for (uint64_t i = 0; i < elements; i++) {
        struct class class = {value_at(tensor->type, tensor->data.ptr + (first + i) * bytes),
                              (uint32_t)i};

        if (i < classes)
            heap[i] = class;
        if (i + 1 == classes) /* a list sorted upwards is a heap */
            qsort(heap, classes, sizeof(*heap), compare_upwards);
        else if (i >= classes && compare(&class, &heap[0]) < 0)
            sink(heap, classes, class);
    }
    qsort(heap, classes, sizeof(*heap), compare);
    for (uint64_t i = 0; i < classes; i++)
        write_class(tensor, &heap[i], out);
}

bool
cn_v2_has_classes(enum cn_datatype type)
{
    return type != CN_DATATYPE_BYTES && type != CN_DATATYPE_FP16 && type != CN_DATATYPE_BF16;
}

int
cn_v2_refuse_classes(struct cn_str output, enum cn_datatype type, struct cn_error *err)
{
    return cn_fail(err, CN_E_BAD_REQUEST, "output '%.*s' is %s, which cannot be classified",
                   CN_STR_ARG(output), cn_datatype_word(type));
}

/* Classifies one tensor; its shape becomes [rows, classes], or [classes] for a model without
 * batches. */
static int
classify(struct cn_tensor *tensor, uint64_t classes, bool batching, struct cn_arena *arena,
         struct cn_error *err)
{
    uint64_t elements, rows = 1, row;
    struct class *heap;
    struct cn_buf out;
    bool failed;

    if (!cn_v2_has_classes(tensor->type))
        return cn_v2_refuse_classes(tensor->name, tensor->type, err);
    if (!cn_shape_elements(tensor->shape, tensor->rank, &elements) || elements > CN_V2_CLASSIFY_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST, "classification output tensor too large");
    if (batching && tensor->rank > 0)
        rows = elements ? (uint64_t)tensor->shape[0] : 0;
    row = rows ? elements / rows : 0;
    classes = classes < row ? classes : row;
    heap = cn_arena_try_alloc(arena, sizeof(*heap) * (classes ? classes : 1));
    if (!heap)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory to classify output '%.*s'",
                       CN_STR_ARG(tensor->name));
    cn_buf_init(&out, 0);
    for (uint64_t i = 0; classes > 0 && i < rows; i++)
        write_row(tensor, i * row, row, classes, heap, &out);
    tensor->type = CN_DATATYPE_BYTES;
    tensor->data = cn_arena_str(arena, cn_buf_str(&out));
    tensor->rank = batching ? 2 : 1;
    tensor->shape[0] = (int64_t)(batching ? rows : classes);
    if (batching)
        tensor->shape[1] = (int64_t)classes;
    failed = out.failed;
    cn_buf_fini(&out);
    return failed ? cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory to classify") : 0;
}

int
cn_v2_classify(const struct cn_v2_request *request, const struct cn_model_io *io,
               struct cn_arena *arena, struct cn_tensor *tensors, uint32_t n, struct cn_error *err)
{
    int rc;

    for (uint32_t i = 0; i < request->n_outputs; i++)
        for (uint32_t k = 0; request->outputs[i].classes > 0 && k < n; k++)
            if (cn_str_eq(tensors[k].name, request->outputs[i].name) &&
                (rc = classify(&tensors[k], request->outputs[i].classes, io->max_batch_size > 0,
                               arena, err)))
                return rc;
    return 0;
}
