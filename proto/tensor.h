/* proto/tensor.h - typed tensors: how they travel in a row's parts and in an answer's body.
 *
 * A tensor is a name, a datatype, a shape and its bytes: little-endian, row-major, packed; BOOL is
 * one byte, 0 or 1; an element of BYTES is a u32 length and that many bytes (the binary tensor
 * extension of the v2 protocol).
 *
 * In a row each tensor is one part: the part's name, a content type such as "tensor/FP32[1,16]",
 * and the bytes as they came, so that a large tensor is not copied to get here. An answer has one
 * body: a set of tensors packed one behind the other, with the content type CN_TENSORS_TYPE.
 *
 * Nothing here knows what a model wants: shapes may have any size that fits. Any thread.
 */
#ifndef CN_PROTO_TENSOR_H
#define CN_PROTO_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/memory/buf.h"
#include "proto/message.h"
#include "proto/wire.h"

#define CN_TENSOR_RANK_MAX 16
#define CN_TENSORS_MAX 1024 /* in one set */
#define CN_TENSORS_TYPE "application/vnd.continuo.tensors"

/* Numbers are those of the model configuration's enum DataType (v2). */
enum cn_datatype {
    CN_DATATYPE_NONE = 0,
#define CN_DATATYPE(name, number, word, config_word, bytes) CN_DATATYPE_##name = (number),
#include "proto/datatypes.def"
#undef CN_DATATYPE
};

struct cn_tensor {
    struct cn_str name;
    enum cn_datatype type;
    uint32_t rank;
    int64_t shape[CN_TENSOR_RANK_MAX]; /* elements; none below 0 */
    struct cn_str data;                /* borrowed; any alignment */
};

/* "FP32", "BYTES" ...; NULL for a number that is none. */
const char *cn_datatype_word(enum cn_datatype type);
/* "TYPE_FP32", "TYPE_STRING" ... */
const char *cn_datatype_config_word(enum cn_datatype type);
/* Takes either spelling; CN_DATATYPE_NONE otherwise. */
enum cn_datatype cn_datatype_parse(struct cn_str word);
/* Bytes of an element; 0 for BYTES, whose elements differ. */
unsigned cn_datatype_bytes(enum cn_datatype type);

/* Elements of a shape (1 for rank 0). False: their number is beyond int64, or a dimension is
 * negative. A zero anywhere makes it zero, whatever the rest. */
bool cn_shape_elements(const int64_t *shape, uint32_t rank, uint64_t *out);
/* "[1,16]" into the arena. */
const char *cn_shape_text(struct cn_arena *arena, const int64_t *shape, uint32_t rank);

/* The next element of a BYTES tensor; false at the end, and with reader->bad when it is broken. */
bool cn_tensor_next(struct cn_reader *reader, struct cn_str *out);
/* Does the data fit type and shape? CN_E_BAD_REQUEST with the sizes otherwise. */
int cn_tensor_check(const struct cn_tensor *tensor, struct cn_error *err);

/* A part that carries the tensor: name and data borrowed from it, content type in the arena. */
struct cn_part cn_tensor_part(const struct cn_tensor *tensor, struct cn_arena *arena);
/* False: the part is no tensor (its content type is of another family, or malformed). */
bool cn_tensor_of_part(const struct cn_part *part, struct cn_tensor *out);

/* How many requests' worth a row is: what its first tensor has as first dimension, where the model
 * has one of batches (1 to max_batch_size); else 1. */
uint32_t cn_tensor_batch(const struct cn_row *row, uint64_t max_batch_size);

/* Packs a set; buf->failed when it did not fit. A set may also be packed by hand: a u32 with their
 * number, then each with _put_one. */
void cn_tensors_put_one(struct cn_buf *buf, const struct cn_tensor *tensor);
void cn_tensors_put(struct cn_buf *buf, const struct cn_tensor *tensors, uint32_t n);
/* Unpacks one; names and data are borrowed from `bytes`. CN_E_PROTOCOL when it is not a whole,
 * valid set: types, shapes and sizes are checked, elements of BYTES too. */
int cn_tensors_get(struct cn_str bytes, struct cn_arena *arena, struct cn_tensor **out, uint32_t *n,
                   struct cn_error *err);

/* Rows of several requests as one tensor, and back. `batched`: the model's tensors have a batch
 * dimension, which grows; else each of them is one row of the stack. */

/* The shape of `all` (type CN_DATATYPE_NONE at first) grows by that of `more`; the data is the
 * caller's to put together. False: their types or shapes differ. */
bool cn_tensor_stack(struct cn_tensor *all, const struct cn_tensor *more, bool batched);
/* Takes `rows` rows off the front of `rest`, a stack: borrowed from it. False: it has fewer, or
 * without `batched` more than one is asked for. */
bool cn_tensor_take(struct cn_tensor *rest, uint64_t rows, bool batched, struct cn_tensor *out);

#endif
