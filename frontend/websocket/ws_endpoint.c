/* frontend/websocket/ws_endpoint.c - the handshake of a stream: everything that can be wrong with
 * it is answered over HTTP, before the connection becomes a WebSocket. On the loop of the request.
 *
 * Browsers let any page open a WebSocket to any server, and send cookies with it, so the Origin is
 * checked for each handshake. They cannot set the header Authorization; a page uses a subprotocol
 * or a ticket instead.
 *
 * A stream is opened with one of these requests:
 *   GET /v1/streams/counter/user-1                      a new stream; any version
 *   GET /v1/streams/counter/1.0/user-1?credit=8         up to 8 unanswered steps
 *   GET /v1/streams/counter/user-1?last=41&generation=3 it goes on behind the answer to step 41
 *   GET /v1/streams/counter/user-1?ticket=4f1c...       by a page that has got a ticket before
 *
 * Once the connection is a WebSocket, a browser tells its page nothing about an error but a number.
 * So whatever can be refused is refused before that, with an ordinary HTTP status and a text. */
#include "frontend/websocket/ws_endpoint.h"

#include <inttypes.h>
#include <stdio.h>

#include "access/certificate/certificate.h"
#include "access/keys.h"
#include "core/text/number.h"
#include "core/text/utf8.h"
#include "core/time/clock.h"
#include "frontend/access/http_certificate.h"
#include "frontend/http/access_log.h"
#include "frontend/http/browser_checks.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "frontend/intake/headers.h"
#include "frontend/websocket/ws_handshake.h"
#include "frontend/websocket/ws_site.h"
#include "frontend/websocket/ws_stream.h"
#include "management/management.h"
#include "scheduler/queue/model_queue.h"

#define PATH_PREFIX "/v1/streams/"

/* --- keys */

bool
cn_streams_is_handshake(const struct cn_http_request *request)
{
    const size_t len = sizeof(PATH_PREFIX) - 1;

    return request->method == CN_HTTP_GET && request->path.len > len &&
           memcmp(request->path.ptr, PATH_PREFIX, len) == 0;
}

/* A ticket stands for the key and the certificate with which it was made, and ends with them. */
static int
use_ticket(struct cn_http_request *request, struct cn_str ticket, struct cn_error *err)
{
    const struct cn_http_shared *shared = request->listener->shared;
    struct cn_ws_ticket_client client;
    int rc = cn_ws_ticket_use(shared->streams, cn_now_ms(), ticket, &client, err);

    if (rc && shared->config->keys)
        return cn_fail(err, CN_E_KEY_REQUIRED,
                       "the ticket is unknown, used or expired; get a new one from this server "
                       "with POST /v1/streams/tickets");
    if (rc)
        return rc;
    request->key = client.key;
    request->ticket_ends_ms = client.certificate_ends_ms;
    rc = cn_certificate_check_end(client.certificate_ends_ms, err);
    return rc ? rc : cn_management_check_key(shared->management, request->key, CN_SCOPE_INFER, err);
}

/* A header is the strongest word, then a key among the subprotocols, then a ticket, and then the
 * certificate of the connection. A ticket beside a key is not used up. */
int
cn_streams_authorize(struct cn_http_request *request, const struct cn_credentials *shown,
                     struct cn_error *err)
{
    const struct cn_http_shared *shared = request->listener->shared;
    const struct cn_header *ticket =
        cn_header_find(request->query, request->n_query, CN_STR("ticket"));
    struct cn_str key = cn_ws_find_key(request->headers, request->n_headers);
    struct cn_credentials given = *shown;

    if (given.sent || key.ptr || ticket)
        request->by_certificate = false;
    if (ticket && !given.sent && !key.ptr)
        return use_ticket(request, ticket->value, err);
    if (!given.sent && key.ptr) {
        given.sent = true;
        given.authorization =
            cn_str_from(cn_arena_printf(&request->arena, "Bearer %.*s", CN_STR_ARG(key)));
    }
    return cn_management_authorize(shared->management, request->api->token, CN_SCOPE_INFER, &given,
                                   &request->key, err);
}

void
cn_streams_handle_tickets(struct cn_http_request *request)
{
    const struct cn_http_shared *shared = request->listener->shared;
    const uint64_t lifetime_ms = shared->config->stream_ticket_ms;
    const struct cn_ws_ticket_client client = {
        .key = request->key,
        .certificate_ends_ms = cn_http_certificate_ends_ms(request->conn),
    };
    char ticket[CN_WS_TICKET_BYTES];
    struct cn_error err;
    const char *json;

    if (cn_ws_ticket_make(shared->streams, cn_now_ms(), lifetime_ms, &client, ticket, &err)) {
        cn_http_answer_error(request, err.code, err.message, 0);
        return;
    }
    json = cn_arena_printf(&request->arena,
                           "{\n  \"ticket\": \"%s\",\n  \"expires_ms\": %" PRIu64 "\n}\n", ticket,
                           lifetime_ms);
    cn_http_answer_json(request, 200, 0, cn_str_from(json));
}

/* --- the query */

/* Reads a parameter that is a number. Returns false if there is none. */
static bool
read_number(const struct cn_http_request *request, struct cn_str name, uint64_t max, uint64_t *out,
            struct cn_error *err)
{
    const struct cn_header *parameter = cn_header_find(request->query, request->n_query, name);

    if (!parameter)
        return false;
    if (cn_read_uint(parameter->value, max, out))
        return true;
    cn_fail(err, CN_E_BAD_REQUEST,
            "the parameter %.*s is \"%.*s\"; it must be a number from 0 to %" PRIu64,
            CN_STR_ARG(name), (int)cn_utf8_cut(parameter->value, 40), parameter->value.ptr, max);
    return false;
}

/* `last` is the number of the last step whose answer the client has. last=0 therefore resumes, too:
 * the client knows that a stream was there, but has seen no answer of it. */
static int
read_query(const struct cn_http_request *request, struct cn_ws_opening *opening,
           struct cn_error *err)
{
    uint64_t credit = 0;

    err->code = 0;
    opening->resumes = read_number(request, CN_STR("last"), INT64_MAX - 1, &opening->last, err);
    if (!err->code)
        read_number(request, CN_STR("generation"), INT64_MAX, &opening->generation, err);
    if (!err->code)
        read_number(request, CN_STR("credit"), UINT32_MAX, &credit, err);
    opening->credit = (uint32_t)credit;
    return err->code;
}

/* --- the handshake */

/* Headers that belong to one step cannot hold for all steps of a stream. */
static int
check_headers(const struct cn_http_request *request, struct cn_str id, struct cn_error *err)
{
    struct cn_sequence_headers sequence;
    int rc = cn_intake_read_sequence(request->headers, request->n_headers, &sequence, err);
    const struct cn_header path = {CN_STR("the path"), id};

    if (rc)
        return rc;
    if (sequence.id.len && !cn_str_eq(sequence.id, id))
        return cn_intake_refuse_two_ids(&sequence, &path, err);
    if (sequence.start || sequence.end)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "START and END belong to one step; send them in its message, not as headers "
                       "of the stream");
    for (uint32_t i = 0; i < request->n_headers; i++)
        if (cn_intake_names_step(request->headers[i].name) ||
            cn_str_eq_header(request->headers[i].name, CN_STR("idempotency-key")))
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "the header %.*s belongs to one step, and the server numbers the steps "
                           "of a stream; leave the header out",
                           CN_STR_ARG(request->headers[i].name));
    return 0;
}

static int
check_id(struct cn_str id, struct cn_error *err)
{
    const struct cn_header header = {CN_STR("the path"), id};
    struct cn_sequence_headers none = {.start = false};

    return cn_intake_read_id(&header, &none, err);
}

/* A client must wait for the answer: what it sends before could be meant for somebody else. */
static int
check_nothing_behind(const struct cn_http_request *request, struct cn_error *err)
{
    if (!request->conn->has_more)
        return 0;
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "bytes came behind the handshake before it was answered; send the first message "
                   "after the answer 101 (RFC 6455, section 4.1)");
}

/* When the stream must end because of a certificate: that of its connection, or that of the client
 * that asked for its ticket. */
static uint64_t
certificate_ends_ms(const struct cn_http_request *request)
{
    const uint64_t ends_ms = cn_http_certificate_ends_ms(request->conn);

    return request->ticket_ends_ms && request->ticket_ends_ms < ends_ms ? request->ticket_ends_ms
                                                                        : ends_ms;
}

/* Checks everything that can be wrong before the connection is a WebSocket. */
static int
prepare(struct cn_http_request *request, struct cn_ws_handshake *handshake,
        struct cn_ws_opening *opening, struct cn_error *err)
{
    const struct cn_http_listener *listener = request->listener;
    const struct cn_route_match *match = &request->match;
    struct cn_model_queue *queue;
    int rc = cn_ws_handshake_read(request->headers, request->n_headers, request->is_http_1_1,
                                  &request->arena, handshake, err);

    *opening = (struct cn_ws_opening){
        .key = request->key,
        .certificate_ends_ms = certificate_ends_ms(request),
        .version = match->n_args == 3 ? match->args[1] : (struct cn_str){NULL, 0},
        .id = match->args[match->n_args - 1],
        .request_id = {request->id, sizeof(request->id) - 1},
        .headers = request->headers,
        .n_headers = request->n_headers,
        .form = handshake->form,
        .window_bits = handshake->window_bits,
    };
    if (!rc)
        rc = cn_browser_check_origin(request->headers, request->n_headers,
                                     cn_http_allowed_origin(request), err);
    if (!rc)
        rc = check_nothing_behind(request, err);
    if (!rc)
        rc = check_id(opening->id, err);
    if (!rc)
        rc = check_headers(request, opening->id, err);
    if (!rc)
        rc = read_query(request, opening, err);
    if (!rc && listener->leaving)
        rc = cn_fail(err, CN_E_DRAINING, "the server is stopping; connect again");
    if (rc)
        return rc;
    queue = cn_management_find(listener->shared->management, match->args[0], opening->version, err);
    if (!queue)
        return err->code;
    opening->queue = queue;
    if (opening->resumes && !cn_model_queue_config(queue)->sequence_batching)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "model %s has no sequences, so its streams cannot be resumed; leave out the "
                       "parameter last",
                       cn_model_queue_name(queue));
    return 0;
}

/* The answer 101 has left, and the socket belongs to the stream now. `extra` are frames that came
 * before the answer had left. */
static void
on_upgraded(struct cn_http_request *request, struct cn_str extra)
{
    struct cn_ws_stream *stream = request->stream;

    request->stream = NULL;
    cn_ws_stream_begin(stream, request->conn, extra);
}

void
cn_streams_handle(struct cn_http_request *request)
{
    struct cn_ws_handshake handshake;
    struct cn_ws_opening opening;
    struct cn_header headers[4];
    struct cn_error err;
    uint32_t n = 0;

    if (prepare(request, &handshake, &opening, &err)) {
        cn_http_answer_error(request, err.code, err.message, 0);
        return;
    }
    request->stream = cn_ws_stream_create(request->listener->streams, &opening);
    if (cn_access_log_enabled()) {
        request->model = cn_arena_str(&request->arena, request->match.args[0]).ptr;
        request->sequence = opening.id;
    }
    headers[n++] = (struct cn_header){CN_STR("Upgrade"), CN_STR("websocket")};
    headers[n++] =
        (struct cn_header){CN_STR("Sec-WebSocket-Accept"), cn_str_from(handshake.accept)};
    if (handshake.protocol)
        headers[n++] =
            (struct cn_header){CN_STR("Sec-WebSocket-Protocol"), cn_str_from(handshake.protocol)};
    if (handshake.extensions)
        headers[n++] = (struct cn_header){CN_STR("Sec-WebSocket-Extensions"),
                                          cn_str_from(handshake.extensions)};
    cn_http_answer_upgrade(request, headers, n, on_upgraded);
}
