/* frontend/endpoints/kserve_models.h - what the v2 protocol says of the server and its models,
 * whatever transport asks.
 *
 * Everything is written as the protocol's JSON; gRPC makes its messages of that, so both always say
 * the same. On any loop.
 */
#ifndef CN_FRONTEND_ENDPOINTS_KSERVE_MODELS_H
#define CN_FRONTEND_ENDPOINTS_KSERVE_MODELS_H

#include "core/errors/error.h"
#include "core/memory/buf.h"

struct cn_management;
struct cn_model_queue;

/* The model of that name, with or without declared tensors, for the calling loop until the end of
 * its turn; `version` empty: the default one. NULL: why, in the protocol's words. */
struct cn_model_queue *cn_v2_find_any(struct cn_management *management, struct cn_str name,
                                      struct cn_str version, struct cn_error *err);
/* The typed model of that name: as above, or CN_E_BAD_REQUEST. */
struct cn_model_queue *cn_v2_find(struct cn_management *management, struct cn_str name,
                                  struct cn_str version, struct cn_error *err);

/* Has it a worker that is ready? Errors of cn_v2_find_any. */
int cn_v2_model_is_ready(struct cn_management *management, struct cn_str name,
                         struct cn_str version, bool *out, struct cn_error *err);

/* The server's name, version and extensions. */
void cn_v2_write_server(struct cn_buf *out);
/* What the model takes and gives, and its configuration. Errors of cn_v2_find. */
int cn_v2_write_model(struct cn_management *management, struct cn_str name, struct cn_str version,
                      struct cn_buf *out, struct cn_error *err);
/* The same, without the tensors that the model does not declare. Errors of cn_v2_find_any. */
int cn_v2_write_any_model(struct cn_management *management, struct cn_str name,
                          struct cn_str version, struct cn_buf *out, struct cn_error *err);
int cn_v2_write_model_config(struct cn_management *management, struct cn_str name,
                             struct cn_str version, struct cn_buf *out, struct cn_error *err);

#endif
