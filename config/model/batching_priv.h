/* config/model/batching_priv.h - what batching.c and batching_control.c share to read a block of
 * the YAML. */
#ifndef CN_CONFIG_MODEL_BATCHING_PRIV_H
#define CN_CONFIG_MODEL_BATCHING_PRIV_H

#include "config/model/batching.h"

struct cn_batching_reader {
    const char *name, *model; /* the names of the document and of the model */
    struct cn_model_io *io;
    struct cn_batching *batching;
    struct cn_error *err;
};

/* These three set and return CN_E_CONFIG with name:line:column. */
int cn_batching_refuse(const struct cn_batching_reader *parse, const struct cn_yaml *at,
                       const char *what, const char *expected);
/* Makes the message a sentence that ends with the model's name. */
int cn_batching_invalid(const struct cn_batching_reader *parse, const struct cn_yaml *at,
                        const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Refuses keys that are not in `known`, which ends with NULL: an unknown key would silently change
 * nothing. */
int cn_batching_check_keys(const struct cn_batching_reader *parse, const struct cn_yaml *map,
                           const char *what, const char *const *known);

/* The value of a key in either spelling; NULL if there is none or `map` is not a map. */
const struct cn_yaml *cn_batching_get(const struct cn_yaml *map, const char *snake);
/* Reads control_input, which has at most one control of each kind. */
int cn_batching_read_controls(const struct cn_batching_reader *parse, const struct cn_yaml *block);

#endif
