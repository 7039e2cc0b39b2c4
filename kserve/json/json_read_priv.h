/* kserve/json/json_read_priv.h - what json_read.c, json_fields.c and json_tensors.c share: an
 * inference request while its JSON is read. Any thread. */
#ifndef CN_KSERVE_JSON_JSON_READ_PRIV_H
#define CN_KSERVE_JSON_JSON_READ_PRIV_H

#include "kserve/json/json_heads.h"
#include "kserve/json/json_numbers.h"
#include "kserve/request.h"

struct reader {
    struct cn_v2_request *out;
    struct cn_arena *arena;
    const struct cn_v2_limits *limits;
    const char *model;
    struct cn_str tail;           /* the binary data that no input has taken yet */
    struct cn_v2_cuts *cuts;      /* what was cut out of the document; NULL: nothing was */
    struct cn_v2_source *sources; /* set by cn_v2_read_inputs: one for each input; in the arena */
    struct cn_error *err;
};

/* --- json_fields.c */

/* The protocol's error for a value of a wrong type. */
int cn_v2_field_unable(const struct reader *reader, const char *key, const char *got,
                       const char *wanted);
/* The protocol's error for a member that must be there. */
int cn_v2_field_missing(const struct reader *reader, const char *key);
/* Copies a string of the document, since the document is freed before the request is. */
struct cn_str cn_v2_field_text(const struct reader *reader, const json_t *value);
/* Reads a member of `map`. `out` is left alone if it is not there and not `required`. */
int cn_v2_field_string(const struct reader *reader, const json_t *map, const char *key,
                       bool required, struct cn_str *out);
int cn_v2_field_bool(const struct reader *reader, const char *key, const json_t *value, bool *out);
int cn_v2_field_uint(const struct reader *reader, const char *key, const json_t *value,
                     uint64_t *out);

/* --- json_tensors.c */

/* Reads the list of inputs, takes the binary data of each off the tail, and refuses what is left of
 * it. */
int cn_v2_read_inputs(struct reader *reader, const json_t *root);
/* Takes the data of all inputs of a request that was found by its head, which has the rest already.
 * Returns false when they cannot be had; then the request must be read anew. */
bool cn_v2_fill_inputs(struct reader *reader, const struct cn_v2_source *sources);
/* Reads the list of requested outputs; without one, the model's outputs are all sent. */
int cn_v2_read_outputs(const struct reader *reader, const json_t *root);

#endif
