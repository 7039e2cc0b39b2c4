/* config/model/model_io_priv.h - what the files share that read a model's tensors from its YAML. */
#ifndef CN_CONFIG_MODEL_MODEL_IO_PRIV_H
#define CN_CONFIG_MODEL_MODEL_IO_PRIV_H

#include "config/model/model_io.h"

struct cn_io_parse {
    struct cn_model_io *io;
    const char *name; /* the document's name */
    struct cn_error *err;
};

/* The value of the first of these keys that is there; the list ends with NULL. */
const struct cn_yaml *cn_io_get(const struct cn_yaml *map, const char *const *keys);
/* Sets and returns CN_E_CONFIG: "name:line:column: what: expected ..., found ..." */
int cn_io_refuse(const struct cn_io_parse *parse, const struct cn_yaml *at, const char *what,
                 const char *expected);
/* Reads a name, which is copied to the arena. `name` is the value in `item` that should be one;
 * NULL: there is none. */
int cn_io_read_name(const struct cn_io_parse *parse, const struct cn_yaml *item,
                    const struct cn_yaml *name, const char *list, struct cn_str *out);
int cn_io_read_type(const struct cn_io_parse *parse, const struct cn_yaml *item,
                    enum cn_datatype *out);
/* Reads dims or shape: sizes from 1, or -1. `out` has room for CN_TENSOR_RANK_MAX sizes, and one
 * less is read at most. */
int cn_io_read_dims(const struct cn_io_parse *parse, const struct cn_yaml *item, int64_t *out,
                    uint32_t *rank);
/* Reads dims with sizes from `least` on, or -1. */
int cn_io_read_sizes(const struct cn_io_parse *parse, const struct cn_yaml *item, int64_t least,
                     int64_t *out, uint32_t *rank);

/* For a document without inputs: checks that what it says about tensors is well-formed, although it
 * has no effect. */
int cn_model_io_check_untyped(const struct cn_yaml_doc *doc, struct cn_error *err);

/* In model_state.c: sets io->state from the document. The tensors of `io` have been read. */
int cn_model_state_parse(const struct cn_io_parse *parse, const struct cn_yaml *root);
/* One YAML document can be laid over another one (overlay.c). This says what the state tensors of
 * the upper document mean. */
enum cn_state_overlay {
    CN_STATE_OVERLAY_NONE, /* it declares no state tensors */
    /* the same as the other document's, as clients of the v2 protocol see them */
    CN_STATE_OVERLAY_SAME,
    CN_STATE_OVERLAY_OTHER
};
/* Compares the state tensors of two documents. `below` NULL is an empty one. CN_E_CONFIG: one of
 * them cannot be read. */
int cn_model_state_compare(const struct cn_yaml_doc *below, const struct cn_yaml_doc *above,
                           enum cn_state_overlay *out, struct cn_error *err);
/* Refuses state tensors in a document without inputs. */
int cn_model_state_without_inputs(const struct cn_io_parse *parse, const struct cn_yaml *root);

#endif
