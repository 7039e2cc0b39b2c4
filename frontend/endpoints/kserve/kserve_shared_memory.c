/* frontend/endpoints/kserve/kserve_shared_memory.c - shared memory requests of the v2 protocol
 * over HTTP. They run on the request's loop, since opening a shared memory object never waits for
 * a disk. */
#include "frontend/endpoints/kserve/kserve_shared_memory.h"

#include "frontend/endpoints/kserve/kserve_http.h"
#include "frontend/endpoints/kserve/kserve_http_priv.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "kserve/shared_memory.h"

/* Answers with an empty 200, or with the error. */
static void
answer_nothing(struct cn_http_request *request, int rc, const struct cn_error *err)
{
    if (rc)
        cn_v2_http_error(request, err->code, err->message);
    else
        cn_http_answer_bytes(request, 200, NULL, CN_STR(""));
}

void
cn_v2_http_shm_status(struct cn_http_request *request)
{
    struct cn_shm_status *regions;
    struct cn_error err;
    struct cn_buf body;
    uint32_t n;

    if (cn_shm_list(request->match.args[0], &request->arena, &regions, &n, &err)) {
        cn_v2_http_error(request, err.code, err.message);
        return;
    }
    cn_buf_init(&body, 0);
    cn_shm_write_status(regions, n, &body);
    cn_http_answer_json(request, 200, 0, cn_buf_str(&body));
    cn_buf_fini(&body);
}

void
cn_v2_http_shm_register(struct cn_http_request *request)
{
    struct cn_str name = request->match.args[0];
    struct cn_shm_status region;
    struct cn_error err;
    int rc;

    if (name.len == 0)
        rc = cn_fail(&err, CN_E_BAD_REQUEST,
                     "'region name' is necessary to register system shared memory region");
    else
        rc =
            cn_shm_read_register(cn_http_request_body_str(request), &request->arena, &region, &err);
    if (!rc)
        rc = cn_shm_register(name, region.key, region.offset, region.bytes, &err);
    answer_nothing(request, rc, &err);
}

void
cn_v2_http_shm_unregister(struct cn_http_request *request)
{
    struct cn_error err;
    int rc = cn_shm_unregister(request->match.args[0], &err);

    answer_nothing(request, rc, &err);
}

void
cn_v2_http_cuda_status(struct cn_http_request *request)
{
    struct cn_str name = request->match.args[0];
    struct cn_error err;

    if (name.len == 0) {
        cn_http_answer_json(request, 200, 0, CN_STR("[]"));
        return;
    }
    cn_fail(&err, CN_E_NOT_FOUND, "Unable to find cuda shared memory region: '%.*s'",
            CN_STR_ARG(name));
    cn_v2_http_error(request, err.code, err.message);
}

void
cn_v2_http_cuda_register(struct cn_http_request *request)
{
    struct cn_error err;
    int rc = cn_shm_register_cuda(request->match.args[0], &err);

    answer_nothing(request, rc, &err);
}

void
cn_v2_http_cuda_unregister(struct cn_http_request *request)
{
    cn_http_answer_bytes(request, 200, NULL, CN_STR(""));
}
