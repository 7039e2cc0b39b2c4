/* config/model/model_io_priv.h - what the files share that read a model's tensors out of its
 * YAML. */
#ifndef CN_CONFIG_MODEL_MODEL_IO_PRIV_H
#define CN_CONFIG_MODEL_MODEL_IO_PRIV_H

#include "config/model/model_io.h"

struct cn_io_parse {
    struct cn_model_io *io;
    const char *name; /* of the document */
    struct cn_error *err;
};

/* The value under the first of these keys; the last one is NULL. */
const struct cn_yaml *cn_io_get(const struct cn_yaml *map, const char *const *keys);
/* CN_E_CONFIG: "name:line:column: what: expected ..., found ..." */
int cn_io_refuse(const struct cn_io_parse *parse, const struct cn_yaml *at, const char *what,
                 const char *expected);
/* `name`: what should be a name in `item`; NULL: it is not there. Copied to the arena. */
int cn_io_read_name(const struct cn_io_parse *parse, const struct cn_yaml *item,
                    const struct cn_yaml *name, const char *list, struct cn_str *out);
int cn_io_read_type(const struct cn_io_parse *parse, const struct cn_yaml *item,
                    enum cn_datatype *out);
/* `out`: room for CN_TENSOR_RANK_MAX; at most one less is read. */
int cn_io_read_dims(const struct cn_io_parse *parse, const struct cn_yaml *item, int64_t *out,
                    uint32_t *rank);
/* The same with sizes from `least` on. */
int cn_io_read_sizes(const struct cn_io_parse *parse, const struct cn_yaml *item, int64_t least,
                     int64_t *out, uint32_t *rank);

/* Of a document without inputs: what it says of tensors otherwise means nothing, but is
 * well-formed. */
int cn_model_io_check_untyped(const struct cn_yaml_doc *doc, struct cn_error *err);

/* model_state.c: sets io->state from the document; io's tensors are read. */
int cn_model_state_parse(const struct cn_io_parse *parse, const struct cn_yaml *root);
/* What the states of a document that is laid over another one say (overlay.c). */
enum cn_state_overlay {
    CN_STATE_OVERLAY_NONE, /* nothing: it declares none */
    CN_STATE_OVERLAY_SAME, /* what the other one's look like to clients of the v2 protocol */
    CN_STATE_OVERLAY_OTHER
};
/* `below`: NULL is an empty one. CN_E_CONFIG: one of them can't be read. */
int cn_model_state_compare(const struct cn_yaml_doc *below, const struct cn_yaml_doc *above,
                           enum cn_state_overlay *out, struct cn_error *err);
/* State that a document without inputs declares is refused. */
int cn_model_state_without_inputs(const struct cn_io_parse *parse, const struct cn_yaml *root);

#endif
