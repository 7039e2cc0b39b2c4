/* kserve/shared_memory.h - the v2 protocol's system shared memory: regions that clients register
 * under a name, and tensors that lie in them.
 *
 * Clients own the memory and may shrink it at any time, and reading a mapped page that is gone
 * would kill the server. So nothing is mapped: the server reads and writes through the descriptor,
 * after it has checked the size (docs/decisions/0011). The regions belong to the process and serve
 * all transports. Any thread may use them; only requests that use a region take the lock.
 */
#ifndef CN_KSERVE_SHARED_MEMORY_H
#define CN_KSERVE_SHARED_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/memory/buf.h"
#include "kserve/request.h"

struct cn_shm_limits {
    bool allowed;
    uint32_t max_regions;
    uint64_t max_region_bytes;
    uint64_t max_input_bytes; /* most bytes that one request may read, from all regions together */
};
/* Sets the limits before loops run, and forgets all regions. */
void cn_shm_setup(const struct cn_shm_limits *limits);

/* Registers a region. `key` is a name for shm_open(). Returns CN_E_UNIMPLEMENTED when the options
 * do not allow it, CN_E_ALREADY_EXISTS, CN_E_INTERNAL when there is no such object,
 * CN_E_BAD_REQUEST for wrong sizes or a reserved key, and CN_E_UNAVAILABLE when there are too many
 * regions. */
int cn_shm_register(struct cn_str name, struct cn_str key, uint64_t offset, uint64_t bytes,
                    struct cn_error *err);
/* Unregisters a region, or all if `name` is empty. An unknown name is not an error. Requests that
 * use a region can go on using it. */
int cn_shm_unregister(struct cn_str name, struct cn_error *err);
/* Returns the error that there is no CUDA. */
int cn_shm_register_cuda(struct cn_str name, struct cn_error *err);

struct cn_shm_status {
    struct cn_str name, key;
    uint64_t offset, bytes;
};
/* Lists the region of that name, or all if `name` is empty, oldest first, in the arena. Returns
 * CN_E_NOT_FOUND for an unknown name. */
int cn_shm_list(struct cn_str name, struct cn_arena *arena, struct cn_shm_status **out, uint32_t *n,
                struct cn_error *err);

/* Does the request name a region, for an input or an output? */
bool cn_shm_is_used(const struct cn_v2_request *request);
/* How many bytes cn_shm_read() will read into the arena. 0 also for a request that it refuses
 * because they are too many. */
uint64_t cn_shm_input_bytes(const struct cn_v2_request *request);
/* Reads the request's inputs that lie in regions into the arena, and takes references to the
 * regions of its outputs. Returns CN_E_NOT_FOUND or CN_E_BAD_REQUEST. The caller must call
 * cn_shm_release() in any case. */
int cn_shm_read(struct cn_v2_request *request, struct cn_arena *arena, struct cn_error *err);
/* Writes the outputs that the request wants in regions, and empties their data in `tensors`.
 * Returns CN_E_INTERNAL when the place that the client gave is too small. */
int cn_shm_store(const struct cn_v2_request *request, struct cn_tensor *tensors, uint32_t n,
                 struct cn_error *err);
/* Gives up the request's references. May be called twice. */
void cn_shm_release(struct cn_v2_request *request);

/* Reads the body of a register request; its texts lie in the arena. Returns CN_E_BAD_REQUEST, or
 * CN_E_INTERNAL when it is not JSON. */
int cn_shm_read_register(struct cn_str body, struct cn_arena *arena, struct cn_shm_status *out,
                         struct cn_error *err);
/* Writes regions as an array of {"name","key","offset","byte_size"}. */
void cn_shm_write_status(const struct cn_shm_status *regions, uint32_t n, struct cn_buf *out);

#endif
