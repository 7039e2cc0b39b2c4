/* grpc/kserve/grpc_shared_memory.c - shared memory requests of the v2 protocol over gRPC: status,
 * register, unregister. On the call's loop, because opening an object in memory does not wait for a
 * disk.
 *
 * kserve/shared_memory.c keeps the regions for HTTP and gRPC. This file only turns messages into
 * calls and results into messages. The same three requests exist for CUDA's shared memory, which
 * never has any regions, since registering one is refused.
 */
#include "grpc/kserve/grpc_shared_memory.h"

#include <v2_inference.pb-c.h>

#include "grpc/error_status.h"
#include "grpc/unary.h"
#include "kserve/shared_memory.h"

typedef Inference__SystemSharedMemoryStatusResponse status_t;
typedef Inference__SystemSharedMemoryStatusResponse__RegionStatus region_t;
typedef Inference__SystemSharedMemoryStatusResponse__RegionsEntry entry_t;

static void
reply_or_fail(struct cn_grpc_call *call, int rc, const struct cn_error *err,
              const ProtobufCMessage *response)
{
    if (rc)
        cn_rpc_fail(call, err->code, err->message, 0);
    else
        cn_rpc_reply(call, response);
}

static entry_t *
entry_of(const struct cn_shm_status *from, struct cn_arena *arena)
{
    entry_t *entry = cn_arena_alloc(arena, sizeof(*entry));
    region_t *region = cn_arena_alloc(arena, sizeof(*region));

    *region = (region_t)INFERENCE__SYSTEM_SHARED_MEMORY_STATUS_RESPONSE__REGION_STATUS__INIT;
    region->name = cn_arena_strndup(arena, from->name.ptr, from->name.len);
    region->key = cn_arena_strndup(arena, from->key.ptr, from->key.len);
    region->offset = from->offset;
    region->byte_size = from->bytes;
    *entry = (entry_t)INFERENCE__SYSTEM_SHARED_MEMORY_STATUS_RESPONSE__REGIONS_ENTRY__INIT;
    entry->key = region->name;
    entry->value = region;
    return entry;
}

void
cn_rpc_v2_shm_status(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const Inference__SystemSharedMemoryStatusRequest *request =
        cn_rpc_take(call, message, &inference__system_shared_memory_status_request__descriptor);
    status_t response = INFERENCE__SYSTEM_SHARED_MEMORY_STATUS_RESPONSE__INIT;
    struct cn_arena *arena = cn_grpc_call_arena(call);
    struct cn_shm_status *regions;
    struct cn_error err;
    uint32_t n = 0;
    int rc;

    if (!request)
        return;
    rc = cn_shm_list(cn_str_from(request->name), arena, &regions, &n, &err);
    response.regions = cn_arena_alloc(arena, sizeof(*response.regions) * ((size_t)n + 1));
    for (; !rc && response.n_regions < n; response.n_regions++)
        response.regions[response.n_regions] = entry_of(&regions[response.n_regions], arena);
    reply_or_fail(call, rc, &err, &response.base);
}

void
cn_rpc_v2_shm_register(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const Inference__SystemSharedMemoryRegisterRequest *request =
        cn_rpc_take(call, message, &inference__system_shared_memory_register_request__descriptor);
    const Inference__SystemSharedMemoryRegisterResponse response =
        INFERENCE__SYSTEM_SHARED_MEMORY_REGISTER_RESPONSE__INIT;
    struct cn_error err;
    int rc;

    if (!request)
        return;
    if (*request->name)
        rc = cn_shm_register(cn_str_from(request->name), cn_str_from(request->key), request->offset,
                             request->byte_size, &err);
    else
        rc = cn_fail(&err, CN_E_BAD_REQUEST,
                     "'region name' is necessary to register system shared memory region");
    reply_or_fail(call, rc, &err, &response.base);
}

void
cn_rpc_v2_shm_unregister(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const Inference__SystemSharedMemoryUnregisterRequest *request =
        cn_rpc_take(call, message, &inference__system_shared_memory_unregister_request__descriptor);
    const Inference__SystemSharedMemoryUnregisterResponse response =
        INFERENCE__SYSTEM_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;
    struct cn_error err;

    if (request)
        reply_or_fail(call, cn_shm_unregister(cn_str_from(request->name), &err), &err,
                      &response.base);
}

/* --- CUDA */

void
cn_rpc_v2_cuda_status(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const Inference__CudaSharedMemoryStatusRequest *request =
        cn_rpc_take(call, message, &inference__cuda_shared_memory_status_request__descriptor);
    const Inference__CudaSharedMemoryStatusResponse response =
        INFERENCE__CUDA_SHARED_MEMORY_STATUS_RESPONSE__INIT;
    struct cn_error err;
    int rc = 0;

    if (!request)
        return;
    if (*request->name)
        rc = cn_fail(&err, CN_E_NOT_FOUND, "Unable to find cuda shared memory region: '%.256s'",
                     request->name);
    reply_or_fail(call, rc, &err, &response.base);
}

void
cn_rpc_v2_cuda_register(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const Inference__CudaSharedMemoryRegisterRequest *request =
        cn_rpc_take(call, message, &inference__cuda_shared_memory_register_request__descriptor);
    const Inference__CudaSharedMemoryRegisterResponse response =
        INFERENCE__CUDA_SHARED_MEMORY_REGISTER_RESPONSE__INIT;
    struct cn_error err;

    if (request)
        reply_or_fail(call, cn_shm_register_cuda(cn_str_from(request->name), &err), &err,
                      &response.base);
}

void
cn_rpc_v2_cuda_unregister(struct cn_grpc_call *call, const struct cn_grpc_message *message)
{
    const Inference__CudaSharedMemoryUnregisterResponse response =
        INFERENCE__CUDA_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;

    if (cn_rpc_take(call, message, &inference__cuda_shared_memory_unregister_request__descriptor))
        cn_rpc_reply(call, &response.base);
}
