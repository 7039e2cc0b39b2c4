/* kserve/json/json_numbers.h - a fast path for arrays of numbers in JSON. Any thread, no state.
 *
 * Most of a JSON request is numbers, and in a JSON document each of them costs an allocation. So
 * the text of each input's "data" that holds only numbers is cut out of the request, and is read
 * straight into the tensor once datatype and shape are known. The few other values that differ from
 * one request of a client to the next are cut out, too. What is left is often the same each time,
 * so json_heads.h knows it already.
 *
 * This path accepts only what is certainly correct, and reports no errors. What it refuses is read
 * again as one document (json_words.h), which reports the error, or accepts what this path does not
 * know: NaN, integers with more than 18 digits, escapes.
 */
#ifndef CN_KSERVE_JSON_JSON_NUMBERS_H
#define CN_KSERVE_JSON_JSON_NUMBERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/memory/arena.h"
#include "core/text/str.h"
#include "kserve/json/json_heads.h"
#include "proto/tensor.h"

#define CN_V2_CUTS_MAX 32 /* most arrays that are cut out of one request */

/* The values besides arrays. */
enum cn_v2_field {
    CN_V2_FIELD_ID,            /* {"id": a text */
    CN_V2_FIELD_SEQUENCE_ID,   /* {"parameters":{"sequence_id": a text or a number */
    CN_V2_FIELD_SEQUENCE_STEP, /* {"parameters":{"sequence_step": a number */
    CN_V2_N_FIELDS
};

struct cn_v2_cuts {
    uint32_t n;                           /* arrays */
    uint32_t found, taken;                /* arrays and fields */
    struct cn_str fields[CN_V2_N_FIELDS]; /* a text has its quotes; ptr NULL: it was not cut out */
    struct cn_str
        at[CN_V2_CUTS_MAX]; /* the arrays' texts with their brackets; they point into the request */
    size_t head_len;
    char head[CN_V2_HEAD_MAX]; /* the request without them; [i] stands for the i-th array, and 0 or
                                  "" for a field */
};

/* Cuts arrays and fields out of a request. Returns false when there is none, or when the request
 * must be read as one document. */
bool cn_v2_cut(struct cn_str text, struct cn_v2_cuts *out);
static inline struct cn_str
cn_v2_cut_head(const struct cn_v2_cuts *cuts)
{
    return (struct cn_str){cuts->head, cuts->head_len};
}

/* Takes a field, without the quotes of a text. Returns false when it was not cut out. */
bool cn_v2_cut_field(struct cn_v2_cuts *cuts, enum cn_v2_field field, struct cn_str *out,
                     bool *is_text);
/* Returns the number that a field is. */
uint64_t cn_v2_cut_number(struct cn_str digits);

/* Sets *number to that of the array which `data` of the head's document stands for. Returns false
 * when it stands for none. */
bool cn_v2_cut_number_of(const struct cn_v2_cuts *cuts, const json_t *data, uint32_t *number);
/* Fills tensor->data, in the arena and with at most `max_bytes`, from the array with this number.
 * The tensor's type and shape are set. Returns false when the array is not such a tensor. */
bool cn_v2_cut_values(struct cn_v2_cuts *cuts, uint32_t number, size_t max_bytes,
                      struct cn_arena *arena, struct cn_tensor *tensor);

/* Reads the `n` numbers of `array`, which may be nested in any way, as elements of `type`. `array`
 * reaches from its bracket to the one that closes it. Returns false when it is not JSON, has more
 * or fewer numbers, or numbers of another kind. */
bool cn_v2_numbers(struct cn_str array, enum cn_datatype type, uint64_t n, char *to);

#endif
