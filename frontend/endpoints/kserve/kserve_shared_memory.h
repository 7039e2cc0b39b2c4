/* frontend/endpoints/kserve/kserve_shared_memory.h - the v2 protocol's regions of shared memory
 * over HTTP (kserve/shared_memory.h). */
#ifndef CN_FRONTEND_ENDPOINTS_KSERVE_KSERVE_SHARED_MEMORY_H
#define CN_FRONTEND_ENDPOINTS_KSERVE_KSERVE_SHARED_MEMORY_H

struct cn_http_request;

/* GET /v2/systemsharedmemory[/region/NAME]/status; POST .../register, .../unregister */
void cn_v2_http_shm_status(struct cn_http_request *request);
void cn_v2_http_shm_register(struct cn_http_request *request);
void cn_v2_http_shm_unregister(struct cn_http_request *request);
/* /v2/cudasharedmemory/...: answers as a server without CUDA does. */
void cn_v2_http_cuda_status(struct cn_http_request *request);
void cn_v2_http_cuda_register(struct cn_http_request *request);
void cn_v2_http_cuda_unregister(struct cn_http_request *request);

#endif
