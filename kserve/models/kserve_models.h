/* kserve/models/kserve_models.h - what the v2 protocol reports about the server and its
 * models, for HTTP and gRPC.
 *
 * Everything is written as the protocol's JSON. The gRPC services make their messages from that
 * JSON, so both transports always report the same. On any loop.
 */
#ifndef CN_KSERVE_MODELS_KSERVE_MODELS_H
#define CN_KSERVE_MODELS_KSERVE_MODELS_H

#include "core/errors/error.h"
#include "core/memory/buf.h"

struct cn_management;
struct cn_model_queue;

/* Finds the model of that name, with or without declared tensors. The pointer is valid on the
 * calling loop until the end of its turn. An empty `version` stands for the default one. Returns
 * NULL with the reason in the protocol's words. */
struct cn_model_queue *cn_v2_find_any(struct cn_management *management, struct cn_str name,
                                      struct cn_str version, struct cn_error *err);
/* Finds the typed model of that name, as above; a model that declares no tensors is refused with
 * CN_E_BAD_REQUEST. */
struct cn_model_queue *cn_v2_find(struct cn_management *management, struct cn_str name,
                                  struct cn_str version, struct cn_error *err);

/* Stores whether the model has a ready worker. Errors: those of cn_v2_find_any. */
int cn_v2_model_is_ready(struct cn_management *management, struct cn_str name,
                         struct cn_str version, bool *out, struct cn_error *err);

/* Writes the server's name, version and extensions. */
void cn_v2_write_server(struct cn_buf *out);
/* Write the inputs and outputs of a model, and its configuration (cn_v2_write_model_config).
 * Errors: those of cn_v2_find. */
int cn_v2_write_model(struct cn_management *management, struct cn_str name, struct cn_str version,
                      struct cn_buf *out, struct cn_error *err);
/* Writes a model's metadata, without tensors for a model that declares none. Errors: those of
 * cn_v2_find_any. */
int cn_v2_write_any_model(struct cn_management *management, struct cn_str name,
                          struct cn_str version, struct cn_buf *out, struct cn_error *err);
int cn_v2_write_model_config(struct cn_management *management, struct cn_str name,
                             struct cn_str version, struct cn_buf *out, struct cn_error *err);

#endif
