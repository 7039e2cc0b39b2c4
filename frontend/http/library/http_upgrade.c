/* frontend/http/library/http_upgrade.c - answers with 101: the connection becomes a WebSocket, and
 * its socket leaves libmicrohttpd. Owned by the loop thread. */
#include <sys/socket.h>

#include "core/log/log.h"
#include "frontend/http/library/http_response_priv.h"
#include "metrics/counters/metrics.h"

/* Over TLS, libmicrohttpd first sends what it still has, and then waits for an event of the
 * client's socket, even if there is nothing to send. So the socket stops reading, which is such an
 * event. The client has --write-timeout to take the rest. */
static void
end_upgrade(const struct cn_http_upgrade *upgrade)
{
    struct cn_http_conn *conn = upgrade->conn;

    if (conn->listener->is_tls) {
        conn->is_ending = true;
        conn->listener->n_ending++;
        cn_http_conn_enter(conn, CN_PHASE_WRITE);
        shutdown(conn->fd, SHUT_RD);
    }
    conn->listener->resumed = true; /* it is freed in the daemon's next run */
    MHD_upgrade_action(upgrade->handle, MHD_UPGRADE_ACTION_CLOSE);
}

/* libmicrohttpd has sent the head of a 101 and leaves the socket to us. With TLS, `fd` is the end
 * of a socket pair, which nobody uses. */
static void
on_upgrade(void *ctx, struct MHD_Connection *mhd, void *slot, const char *extra, size_t extra_len,
           MHD_socket fd, struct MHD_UpgradeResponseHandle *handle)
{
    struct cn_http_request *request = cn_http_request_cast(ctx);
    const struct cn_http_upgrade upgrade = {request->conn, handle, end_upgrade};

    (void)mhd, (void)slot, (void)fd;
    cn_http_conn_leave_http(request->conn);
    cn_http_conn_enter(request->conn, CN_PHASE_UPGRADED);
    request->on_upgraded(request, (struct cn_str){extra, extra_len}, &upgrade);
}

bool
cn_http_answer_upgrade(struct cn_http_request *request, const struct cn_header *headers, uint32_t n,
                       cn_http_upgraded_fn on_upgraded)
{
    struct MHD_Response *response;

    if (!cn_http_is_answerable(request))
        return false;
    response = MHD_create_response_for_upgrade(on_upgrade, request);
    if (!response)
        cn_panic(__FILE__, __LINE__, "not enough memory for a response");
    for (uint32_t i = 0; i < n; i++)
        cn_http_add(response, headers[i].name.ptr, headers[i].value.ptr);
    cn_http_add(response, "x-request-id", request->id);
    request->on_upgraded = on_upgraded;
    request->state = CN_REQUEST_ANSWERED;
    request->status = MHD_HTTP_SWITCHING_PROTOCOLS;
    if (MHD_queue_response(request->mhd, MHD_HTTP_SWITCHING_PROTOCOLS, response) != MHD_YES) {
        cn_log(CN_LOG_ERROR, "event=response_not_queued status=101");
        request->state = CN_REQUEST_BROKEN;
    }
    MHD_destroy_response(response);
    if (request->mhd_done || request->state == CN_REQUEST_BROKEN)
        return false;
    cn_http_conn_enter(request->conn, CN_PHASE_WRITE);
    cn_metrics_add(cn_loop_metrics(request->listener->loop), CN_M_HTTP_REQUESTS, 1);
    return true;
}
