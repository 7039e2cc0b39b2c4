/* frontend/http/transport/http_upgrade.c - answers with 101: the connection becomes a WebSocket.
 * Owned by the loop thread. */
#include "frontend/http/http_answer.h"
#include "frontend/http/transport/http_transport_priv.h"

bool
cn_http_answer_upgrade(struct cn_http_request *request, const struct cn_header *headers, uint32_t n,
                       cn_http_upgraded_fn on_upgraded)
{
    if (!cn_http_is_answerable(request))
        return false;
    request->on_upgraded = on_upgraded;
    cn_http_head_send_upgrade(request, headers, n);
    return !request->conn->failed;
}

void
cn_http_upgrade_end(struct cn_http_conn *conn)
{
    conn->failed = true;
    cn_http_conn_go_on(conn);
}
