/* config/model/batching_priv.h - what batching.c and batching_control.c share: reading a block of
 * the YAML. */
#ifndef CN_CONFIG_MODEL_BATCHING_PRIV_H
#define CN_CONFIG_MODEL_BATCHING_PRIV_H

#include "config/model/batching.h"

struct cn_batching_reader {
    const char *name, *model; /* of the document; of the model */
    struct cn_model_io *io;
    struct cn_batching *batching;
    struct cn_error *err;
};

/* All three: CN_E_CONFIG with name:line:column. */
int cn_batching_refuse(const struct cn_batching_reader *parse, const struct cn_yaml *at,
                       const char *what, const char *expected);
/* One of the sentences that end with the model's name. */
int cn_batching_invalid(const struct cn_batching_reader *parse, const struct cn_yaml *at,
                        const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* `known` ends with NULL. A key that is not meant would silently change nothing. */
int cn_batching_check_keys(const struct cn_batching_reader *parse, const struct cn_yaml *map,
                           const char *what, const char *const *known);

/* The value of a key in either spelling; NULL: there is none, or no map. */
const struct cn_yaml *cn_batching_get(const struct cn_yaml *map, const char *snake);
/* control_input: at most one of each kind. */
int cn_batching_read_controls(const struct cn_batching_reader *parse, const struct cn_yaml *block);

#endif
