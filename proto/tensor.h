/* proto/tensor.h - typed tensors: how they travel in a row's parts and in an answer's body.
 *
 * A tensor is a name, a datatype, a shape and its bytes: little-endian, row-major, packed; BOOL is
 * one byte, 0 or 1; an element of BYTES is a u32 length and that many bytes (the binary tensor
 * extension of the v2 protocol).
 *
 * In a row each tensor is one part: the part's name is the tensor's name, its content type gives
 * datatype and shape ("tensor/FP32[1,16]"), and its data are the bytes as they came from the
 * client, so that a large tensor is not copied. An answer has one body: a set of tensors packed one
 * behind the other, with the content type CN_TENSORS_TYPE.
 *
 * These functions do not know which tensors a model declares; config/model/model_io.h does. Any
 * thread.
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
#define CN_TENSORS_MAX 1024 /* tensors in one set */
#define CN_TENSORS_TYPE "application/vnd.continuo.tensors"

/* The numbers are those of enum DataType in Triton's model_config.proto. */
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
    int64_t shape[CN_TENSOR_RANK_MAX]; /* elements per dimension; never negative */
    struct cn_str data;                /* borrowed; any alignment */
};

/* Returns the v2 protocol's name of a datatype, "FP32" or "BYTES"; NULL for CN_DATATYPE_NONE and
 * for a number that is not a datatype. */
const char *cn_datatype_word(enum cn_datatype type);
/* Returns the model configuration's name of a datatype, "TYPE_FP32" or "TYPE_STRING"; NULL as
 * above. */
const char *cn_datatype_config_word(enum cn_datatype type);
/* Accepts either spelling; returns CN_DATATYPE_NONE for any other word. */
enum cn_datatype cn_datatype_parse(struct cn_str word);
/* Returns the size of an element in bytes; 0 for BYTES, whose elements have different sizes. */
unsigned cn_datatype_bytes(enum cn_datatype type);

/* Sets *out to the number of elements of a shape (1 for rank 0). Returns false when a dimension is
 * negative or the number does not fit an int64. With a dimension of 0 the number is 0, however
 * large the others are. */
bool cn_shape_elements(const int64_t *shape, uint32_t rank, uint64_t *out);
/* Returns the shape as text, "[1,16]", allocated from the arena. */
const char *cn_shape_text(struct cn_arena *arena, const int64_t *shape, uint32_t rank);

/* Reads the next element of a BYTES tensor into *out. Returns false at the end, and also at a
 * truncated element, when reader->bad is set. */
bool cn_tensor_next(struct cn_reader *reader, struct cn_str *out);
/* Checks that the data's size fits datatype and shape. Returns 0, or CN_E_BAD_REQUEST with a
 * message that names both sizes. */
int cn_tensor_check(const struct cn_tensor *tensor, struct cn_error *err);

/* Returns a part that carries the tensor. Name and data are borrowed from the tensor; the content
 * type is allocated from the arena. */
struct cn_part cn_tensor_part(const struct cn_tensor *tensor, struct cn_arena *arena);
/* Reads a part as a tensor that borrows from it. Returns false when the part is not a tensor: its
 * content type is of another family, or malformed. Does not check the size of the data. */
bool cn_tensor_of_part(const struct cn_part *part, struct cn_tensor *out);

/* Returns for how many requests a row counts. If the model has a batch dimension (max_batch_size
 * is not 0), this is the first dimension of the row's first tensor, provided that it lies between 1
 * and max_batch_size. In all other cases a row counts as 1. */
uint32_t cn_tensor_batch(const struct cn_row *row, uint64_t max_batch_size);

/* Appends a packed set to `buf`; buf->failed is set when it does not fit. */
void cn_tensors_put(struct cn_buf *buf, const struct cn_tensor *tensors, uint32_t n);
/* Appends one tensor of a set. A caller that has no array of tensors writes their number as a u32
 * and then calls this function for each of them. */
void cn_tensors_put_one(struct cn_buf *buf, const struct cn_tensor *tensor);
/* Appends one tensor of a set, but leaves tensor->data.len bytes free where its data belongs.
 * Returns the address of the free bytes, which is valid until `buf` is changed again; NULL when the
 * tensor does not fit. */
char *cn_tensors_put_head(struct cn_buf *buf, const struct cn_tensor *tensor);
/* Returns how many bytes a tensor of a set takes without its data. */
size_t cn_tensors_head_bytes(size_t name_len, uint32_t rank);
/* Unpacks a set into an array of *n tensors from the arena; names and data are borrowed from
 * `bytes`. Returns 0, or CN_E_PROTOCOL when `bytes` is not one complete and valid set: datatypes,
 * shapes and sizes are checked, and the elements of BYTES too. */
int cn_tensors_get(struct cn_str bytes, struct cn_arena *arena, struct cn_tensor **out, uint32_t *n,
                   struct cn_error *err);

/* The next two functions join the rows of several requests to one tensor, and split it again.
 * `batched`: the model's tensors have a batch dimension, in which the rows are joined: [2,16] and
 * [1,16] become [3,16]. Otherwise each tensor is one row of the joined one: [16] and [16] become
 * [2,16]. */

/* Adds the shape of `more` to that of `all`, whose type is CN_DATATYPE_NONE before the first call.
 * The caller joins the data. Returns false when types or shapes differ. */
bool cn_tensor_stack(struct cn_tensor *all, const struct cn_tensor *more, bool batched);
/* Takes the first `rows` rows of the joined tensor `rest`, which keeps the others; *out borrows its
 * data. Returns false when `rest` has fewer rows, or when `rows` is not 1 without `batched`. */
bool cn_tensor_take(struct cn_tensor *rest, uint64_t rows, bool batched, struct cn_tensor *out);

#endif
