/* kserve/access.h - which groups of the v2 protocol's requests require a header, and which headers
 * are passed on to the handler as parameters. Set once before loops run; read by any thread,
 * without a lock. */
#ifndef CN_KSERVE_ACCESS_H
#define CN_KSERVE_ACCESS_H

#include <stdbool.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "kserve/request.h"
#include "proto/message.h"

enum cn_v2_transport { CN_V2_HTTP, CN_V2_GRPC, CN_V2_N_TRANSPORTS };

enum cn_v2_group {
    CN_V2_HEALTH,
    CN_V2_METADATA,
    CN_V2_INFERENCE,
    CN_V2_SHARED_MEMORY,
    CN_V2_MODEL_CONFIG,
    CN_V2_MODEL_REPOSITORY,
    CN_V2_STATISTICS,
    CN_V2_TRACE,
    CN_V2_LOGGING,
    CN_V2_N_GROUPS
};

/* Reads the options of one transport. `restricted`: "GROUP,GROUP:HEADER=VALUE", several of them
 * separated by ";"; for gRPC the metadata key is triton-grpc-protocol-HEADER; NULL: no restriction.
 * `forward`: a POSIX extended regular expression, case-insensitive, that is searched for in the
 * names of headers; NULL: none is passed on. Returns CN_E_CONFIG. */
int cn_v2_access_setup(enum cn_v2_transport transport, const char *restricted, const char *forward,
                       struct cn_error *err);

/* Does the group require a header? */
bool cn_v2_access_is_restricted(enum cn_v2_transport transport, enum cn_v2_group group);
/* Returns CN_E_RESTRICTED when a request with these headers may not use that group. */
int cn_v2_access_check(enum cn_v2_transport transport, enum cn_v2_group group,
                       const struct cn_header *headers, uint32_t n, struct cn_error *err);
/* Returns the group of a path such as "/v2/models/{model_name}/infer"; CN_V2_METADATA for any path
 * that has no group of its own. */
enum cn_v2_group cn_v2_group_of_path(struct cn_str pattern);

/* Adds a parameter to the request for each header that is to be passed on. Returns CN_E_BAD_REQUEST
 * when such a header has a name that the protocol itself uses. */
int cn_v2_access_forward(enum cn_v2_transport transport, const struct cn_header *headers,
                         uint32_t n, struct cn_arena *arena, struct cn_v2_request *request,
                         struct cn_error *err);

#endif
