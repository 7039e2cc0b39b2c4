/* kserve/shared_memory.h - system shared memory of the v2 protocol: regions that clients register
 * by name, and tensors that lie in them.
 *
 * Clients own the memory and may shrink it at any time, so nothing is mapped: it is read and
 * written through its descriptor, after a look at its size (docs/decisions). The regions are the
 * process's, for all transports: any thread, under one lock, which only requests that use a region
 * take.
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
    uint64_t max_input_bytes; /* of one request, in all regions */
};
/* Before loops run; the regions of before are gone. */
void cn_shm_setup(const struct cn_shm_limits *limits);

/* `key`: as shm_open() takes it. CN_E_UNIMPLEMENTED: not allowed by the server's options;
 * CN_E_ALREADY_EXISTS; CN_E_INTERNAL: no such object; CN_E_BAD_REQUEST: sizes, a reserved key;
 * CN_E_UNAVAILABLE: too many. */
int cn_shm_register(struct cn_str name, struct cn_str key, uint64_t offset, uint64_t bytes,
                    struct cn_error *err);
/* Harmless for an unknown name; empty: all of them. What requests use still works for those. */
int cn_shm_unregister(struct cn_str name, struct cn_error *err);
/* There is no CUDA here: says so. */
int cn_shm_register_cuda(struct cn_str name, struct cn_error *err);

struct cn_shm_status {
    struct cn_str name, key;
    uint64_t offset, bytes;
};
/* By age, in the arena; `name` empty: all. CN_E_NOT_FOUND. */
int cn_shm_list(struct cn_str name, struct cn_arena *arena, struct cn_shm_status **out, uint32_t *n,
                struct cn_error *err);

/* Reads the inputs of the request that lie in regions into the arena, and holds the regions of its
 * outputs. CN_E_NOT_FOUND, CN_E_BAD_REQUEST. Call cn_shm_release() in any case. */
int cn_shm_read(struct cn_v2_request *request, struct cn_arena *arena, struct cn_error *err);
/* Writes those outputs that the request wants in regions, and empties their data. CN_E_INTERNAL:
 * the place that the client gave is too small. */
int cn_shm_store(const struct cn_v2_request *request, struct cn_tensor *tensors, uint32_t n,
                 struct cn_error *err);
/* The request is over. Harmless twice. */
void cn_shm_release(struct cn_v2_request *request);

/* The body of a register request. Strings lie in the arena. CN_E_BAD_REQUEST, CN_E_INTERNAL (no
 * JSON). */
int cn_shm_read_register(struct cn_str body, struct cn_arena *arena, struct cn_shm_status *out,
                         struct cn_error *err);
/* An array of {"name","key","offset","byte_size"}. */
void cn_shm_write_status(const struct cn_shm_status *regions, uint32_t n, struct cn_buf *out);

#endif
