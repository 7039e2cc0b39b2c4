/* frontend/http/transport/http_record.c - the record of a request, from its headers to its last
 * owner. Owned by the loop thread.
 *
 * A request has two owners: its connection, from the head to the last byte of the answer, and the
 * holder (a job or a management call), from cn_http_request_hold() to cn_http_request_release().
 * Either one may end first. If the client leaves, the connection ends while the job still runs; the
 * job's answer then finds no connection and is dropped. The last owner frees the request, and with
 * its arena everything that was read from it. */
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/transport/http_transport_priv.h"
#include "frontend/intake/compress.h"
#include "frontend/intake/intake.h"
#include "scheduler/queue/job.h"

/* The record is the first allocation in its own arena, so that freeing the arena frees
 * everything. */
struct cn_http_request *
cn_http_request_create(struct cn_http_conn *conn, struct cn_str head)
{
    struct cn_http_request *request;
    struct cn_arena arena;

    cn_arena_init(&arena);
    request = cn_arena_alloc(&arena, sizeof(*request));
    memset(request, 0, sizeof(*request));
    request->arena = arena;
    request->listener = conn->listener;
    request->api = request->listener->api;
    request->conn = conn;
    request->head = cn_arena_str(&request->arena, head);
    request->boxes_end = &request->boxes;
    cn_intake_make_request_id(request->id);
    request->begun_us = cn_loop_now_us(conn->listener->loop);
    cn_assert(!conn->request);
    conn->request = request;
    conn->listener->n_requests++;
    return request;
}

static void
destroy(struct cn_http_request *request)
{
    struct cn_arena arena = request->arena;
    struct cn_answer_box *box, *next;

    for (box = request->boxes; box; box = next) {
        next = (struct cn_answer_box *)box->msg.next;
        cn_answer_box_free(box);
    }
    if (request->body_on_heap)
        cn_free(request->body);
    if (request->compressor)
        cn_compressor_destroy(request->compressor);
    cn_free(request->answer);
    cn_request_bytes_done(&request->body_bytes);
    request->listener->n_requests--;
    cn_arena_fini(&arena);
}

void
cn_http_request_hold(struct cn_http_request *request, void *call,
                     void (*on_gone)(struct cn_http_request *request))
{
    cn_assert(!request->held);
    request->held = true;
    request->call = call;
    request->on_gone = on_gone;
}

void
cn_http_request_release(struct cn_http_request *request)
{
    cn_assert(request->held);
    request->held = false;
    if (!request->conn)
        destroy(request);
}

/* Tells the holder, once, that nobody waits for the answer any more. */
static void
tell_gone(struct cn_http_request *request)
{
    void (*on_gone)(struct cn_http_request *) = request->on_gone;

    request->on_gone = NULL;
    if (request->held && on_gone)
        on_gone(request);
}

void
cn_http_request_peer_closed(struct cn_http_request *request)
{
    /* A client may close its sending side and still read. So work that has not begun is
     * cancelled, but an answer is still written. */
    if (request->state == CN_REQUEST_PARKED || request->state == CN_REQUEST_STARVED)
        tell_gone(request);
}

void
cn_http_record_let_go(struct cn_http_request *request)
{
    if (request->held)
        tell_gone(request);
    else
        destroy(request);
}
