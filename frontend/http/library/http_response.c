/* frontend/http/library/http_response.c - gives a response to libmicrohttpd, with the headers that
 * all responses have. Owned by the loop thread.
 *
 * TorchServe closes the connection after every status from 400 on. We do that only where the
 * connection cannot be trusted or used any further (malformed HTTP, a body that was not read) and
 * while draining: a client that is told "queue full, try again" should not have to open a new
 * connection. */
#include "core/log/log.h"
#include "frontend/access/http_certificate.h"
#include "frontend/http/library/http_daemon_priv.h"
#include "frontend/http/library/http_response_priv.h"
#include "frontend/intake/sequence_names.h"
#include "management/management.h"
#include "metrics/counters/metrics.h"
#include "torchserve/metrics/metric_lines.h"

void
cn_http_tell_text(struct MHD_Response *response, const struct cn_http_request *request,
                  struct cn_str name, const char *value)
{
    if (value)
        cn_http_tell(response, request, name, cn_str_from(value));
}

/* Adds the headers for scripts of other sites. TorchServe has them on every answer, too. */
static void
add_cors(struct MHD_Response *response, const struct cn_http_request *request)
{
    const struct cn_server_config *config = request->listener->shared->config;

    if (!config->cors_allowed_origin)
        return;
    cn_http_tell_text(response, request, CN_STR("Access-Control-Allow-Origin"),
                      config->cors_allowed_origin);
    cn_http_tell_text(response, request, CN_STR("Access-Control-Allow-Methods"),
                      config->cors_allowed_methods);
    cn_http_tell_text(response, request, CN_STR("Access-Control-Allow-Headers"),
                      config->cors_allowed_headers);
    if (cn_http_allows_credentials(config))
        cn_http_tell_text(response, request, CN_STR("Access-Control-Allow-Credentials"), "true");
}

#define CACHE_CONTROL "no-cache; no-store, must-revalidate, private"
#define EXPIRES "Thu, 01 Jan 1970 00:00:00 UTC"

/* Adds the headers that are the same in each answer. */
static void
add_constant(struct MHD_Response *response, const struct cn_http_request *request)
{
    if (cn_http_has_head_text(request)) {
        cn_buf_append_str(&request->conn->head_text,
                          CN_STR("Pragma: no-cache\r\nCache-Control: " CACHE_CONTROL
                                 "\r\nExpires: " EXPIRES "\r\n"));
        return;
    }
    cn_http_add(response, "Pragma", "no-cache");
    cn_http_add(response, "Cache-Control", CACHE_CONTROL);
    cn_http_add(response, "Expires", EXPIRES);
}

/* Does the connection end with this answer? In TorchServe's dialect it ends after each error.
 * There, an answer after which the connection stays open says so with a header. */
static bool
closes(struct MHD_Response *response, const struct cn_http_request *request, unsigned status)
{
    bool exact = request->listener->shared->config->dialect == CN_DIALECT_TORCHSERVE;
    /* A client that has closed its side sends no more; libmicrohttpd does not see that when the end
     * came together with the request. */
    bool ends = request->close || request->listener->leaving || request->conn->peer_closed;

    if (exact && status < 400 && !ends)
        MHD_set_response_options(response, MHD_RF_SEND_KEEP_ALIVE_HEADER, MHD_RO_END);
    return ends || (exact && status >= 400);
}

/* Adds the headers that do not depend on the body: TorchServe's own, and what the request has
 * collected about its sequence on the way. */
static void
add_common(struct MHD_Response *response, const struct cn_http_request *request, unsigned status)
{
    cn_http_tell(response, request, CN_STR("x-request-id"),
                 (struct cn_str){request->id, sizeof(request->id) - 1});
    add_constant(response, request);
    if (request->echo_value.len)
        cn_http_tell(response, request, request->echo_name, request->echo_value);
    if (request->echo_value.len && request->echo_short)
        cn_http_tell(response, request, CN_STR(CN_SHORT_SEQUENCE_HEADER), request->echo_value);
    cn_http_tell_text(response, request, CN_STR("traceparent"), request->traceparent);
    cn_http_tell_text(response, request, CN_STR("Continuo-Sequence-Restarted"), request->restarted);
    cn_http_tell_text(response, request, CN_STR("Inference-Header-Content-Length"),
                      request->json_length);
    cn_http_tell_text(response, request, CN_STR("X-Amzn-SageMaker-New-Session-Id"),
                      request->new_session);
    cn_http_tell_text(response, request, CN_STR("X-Amzn-SageMaker-Closed-Session-Id"),
                      request->closed_session);
    cn_http_tell_text(response, request, CN_STR("Continuo-Replayed"),
                      request->replayed ? "true" : NULL);
    cn_http_tell_number(response, request, CN_STR("Continuo-Sequence-Step"), request->step);
    cn_http_tell_number(response, request, CN_STR("Continuo-Expected-Step"),
                        request->expected_step);
    cn_http_tell_text(response, request, CN_STR("Allow"), request->allow);
    cn_http_tell_text(response, request, CN_STR("Location"), request->location);
    cn_http_tell_text(response, request, CN_STR("Accept-Encoding"), request->codings);
    add_cors(response, request);
    if (closes(response, request, status))
        cn_http_add(response, "Connection", "close");
}

/* Counts the answer in TorchServe's three metrics. Statuses that are neither 2xx nor 4xx count as
 * 5xx there. */
static void
count_for_torchserve(struct cn_metrics *metrics, unsigned status)
{
    unsigned hundreds = status / 100;

    cn_metrics_add(metrics, hundreds == 2 ? CN_M_HTTP_2XX : CN_M_HTTP_OTHER, hundreds != 4);
    if (cn_ts_logs())
        cn_ts_log(CN_LOG_METRICS,
                  hundreds == 2   ? "Requests2XX.Count"
                  : hundreds == 4 ? "Requests4XX.Count"
                                  : "Requests5XX.Count",
                  1, "Level:Host", NULL);
}

static void
count(const struct cn_http_request *request, unsigned status)
{
    struct cn_metrics *metrics = cn_loop_metrics(request->listener->loop);

    cn_metrics_add(metrics, CN_M_HTTP_REQUESTS, 1);
    count_for_torchserve(metrics, status);
    if (status >= 500)
        cn_metrics_add(metrics, CN_M_HTTP_5XX, 1);
    else if (status >= 400)
        cn_metrics_add(metrics, CN_M_HTTP_4XX, 1);
}

void
cn_http_drop_unread(struct cn_unread *unread)
{
    struct cn_http_request *request = cn_container_of(unread, struct cn_http_request, unread);

    if (request->conn)
        cn_http_conn_drop(request->conn, "max-unread-answers");
}

void
cn_http_listener_resume(struct cn_http_request *request)
{
    if (request->lingering)
        cn_http_stop_lingering(request);
    else
        MHD_resume_connection(request->mhd);
    request->listener->resumed = true;
}

void
cn_http_queue(struct cn_http_request *request, unsigned status, struct MHD_Response *response,
              enum cn_http_state next)
{
    bool parked = request->state == CN_REQUEST_PARKED;

    add_common(response, request, status);
    if (request->conn->head_text.failed)
        cn_panic(__FILE__, __LINE__, "not enough memory for the headers of a response");
    request->conn->reader.head_text = cn_buf_str(&request->conn->head_text);
    request->state = (uint8_t)next;
    request->status = status;
    if (MHD_queue_response(request->mhd, status, response) != MHD_YES) {
        cn_log(CN_LOG_ERROR, "event=response_not_queued status=%u", status);
        request->state = CN_REQUEST_BROKEN;
    }
    MHD_destroy_response(response); /* libmicrohttpd has its own reference */
    if (request->mhd_done)
        return; /* its headers did not fit the connection's memory: closed, and completed already */
    cn_http_conn_enter(request->conn, CN_PHASE_WRITE);
    if (next == CN_REQUEST_ANSWERED)
        cn_http_wait_for_reader(request, request->answer_bytes);
    count(request, status);
    if (parked)
        cn_http_listener_resume(request);
}
