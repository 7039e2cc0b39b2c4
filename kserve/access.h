/* kserve/access.h - which groups of the v2 protocol's requests ask for a header, and which headers
 * go on to the handler as parameters. Set once before loops run; then any thread, without a lock.
 */
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

/* `restricted`: "GROUP,GROUP:HEADER=VALUE", several of these with ; between; of gRPC the metadata
 * key is triton-grpc-protocol-HEADER. NULL: none. `forward`: a regular expression (POSIX extended,
 * in any case of letters) that is looked for in the names of headers; NULL: none. CN_E_CONFIG. */
int cn_v2_access_setup(enum cn_v2_transport transport, const char *restricted, const char *forward,
                       struct cn_error *err);

/* May a request with these headers do that? CN_E_RESTRICTED. */
int cn_v2_access_check(enum cn_v2_transport transport, enum cn_v2_group group,
                       const struct cn_header *headers, uint32_t n, struct cn_error *err);
/* Of "/v2/models/{model_name}/infer" and the like; of any other path CN_V2_METADATA. */
enum cn_v2_group cn_v2_group_of_path(struct cn_str pattern);

/* Adds a parameter to the request for each header that is to go on. CN_E_BAD_REQUEST: one has a
 * name that is the protocol's own. */
int cn_v2_access_forward(enum cn_v2_transport transport, const struct cn_header *headers,
                         uint32_t n, struct cn_arena *arena, struct cn_v2_request *request,
                         struct cn_error *err);

#endif
