/* frontend/endpoints/kserve_shared_memory.h - regions of shared memory over HTTP
 * (kserve/shared_memory.h). */
#ifndef CN_FRONTEND_ENDPOINTS_KSERVE_SHARED_MEMORY_H
#define CN_FRONTEND_ENDPOINTS_KSERVE_SHARED_MEMORY_H

struct cn_http_request;

/* GET /v2/systemsharedmemory[/region/NAME]/status; POST .../register, .../unregister */
void cn_v2_http_shm_status(struct cn_http_request *request);
void cn_v2_http_shm_register(struct cn_http_request *request);
void cn_v2_http_shm_unregister(struct cn_http_request *request);
/* The same of /v2/cudasharedmemory: as a server without CUDA answers. */
void cn_v2_http_cuda_status(struct cn_http_request *request);
void cn_v2_http_cuda_register(struct cn_http_request *request);
void cn_v2_http_cuda_unregister(struct cn_http_request *request);

#endif
