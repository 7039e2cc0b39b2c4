/* kserve/json/json_numbers.h - arrays of numbers, read past the document. Any thread, no state.
 *
 * Most of a JSON request are numbers, and a document of them costs an allocation each. So the text
 * of each input's "data" is cut out where it holds nothing but numbers, and goes straight into the
 * tensor once datatype and shape are known. What is left is often the same from request to request,
 * and json_heads.h knows it again.
 *
 * A short way for what is in order: it tells no mistakes. What is refused here is read once more as
 * one document (json_words.h), which finds the words for it, or knows what this does not: NaN,
 * integers beyond 18 digits, escapes.
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

#define CN_V2_CUTS_MAX 32 /* of one request */

struct cn_v2_cuts {
    uint32_t n, taken;
    struct cn_str at[CN_V2_CUTS_MAX]; /* the arrays' text, with their brackets; borrowed */
    size_t head_len;
    char head[CN_V2_HEAD_MAX]; /* the request without them: the i-th array is [i] there */
};

/* False: there is nothing to cut out, or it has to be read as one document. */
bool cn_v2_cut(struct cn_str text, struct cn_v2_cuts *out);
static inline struct cn_str
cn_v2_cut_head(const struct cn_v2_cuts *cuts)
{
    return (struct cn_str){cuts->head, cuts->head_len};
}

/* Fills tensor->data, in the arena and of at most `max_bytes`, from the array that `data` of the
 * head's document stands for; type and shape are set. False: what is there is no such tensor. */
bool cn_v2_cut_values(struct cn_v2_cuts *cuts, const json_t *data, size_t max_bytes,
                      struct cn_arena *arena, struct cn_tensor *tensor);

/* `n` numbers of `array`, nested to any shape, as elements of `type`. `array`: from its bracket to
 * the one that closes it. False: it is no JSON, its numbers are more or fewer, or of another kind.
 */
bool cn_v2_numbers(struct cn_str array, enum cn_datatype type, uint64_t n, char *to);

#endif
