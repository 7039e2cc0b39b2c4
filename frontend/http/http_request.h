/* frontend/http/http_request.h - one request: what came, how far it is, and who still needs it.
 *
 * Lives in its own arena. It is freed when both libmicrohttpd is done with it and nobody holds
 * it (a job or a management call that has not been answered). Owned by the loop thread.
 */
#ifndef CN_FRONTEND_HTTP_HTTP_REQUEST_H
#define CN_FRONTEND_HTTP_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/text/str.h"
#include "frontend/http/http_checks.h"
#include "frontend/http/http_conn.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/route.h"
#include "proto/message.h"

struct MHD_Connection;
struct cn_answer_box;

/* The head of an answer is built in what the head of its request leaves of connection-memory. So
 * much is kept for it: our own headers, with the longest sequence id. */
#define CN_HTTP_ANSWER_ROOM 1024

/* Never inferred from "no more bytes": libmicrohttpd calls with size 0 for several reasons. */
enum cn_http_state {
    CN_REQUEST_BODY,      /* headers are checked; the body is coming */
    CN_REQUEST_SWALLOW,   /* body over the limit: read and dropped, then refused */
    CN_REQUEST_HANDLING,  /* its function runs in this very call */
    CN_REQUEST_PARKED,    /* waits for an answer, its connection lingering or suspended */
    CN_REQUEST_STREAMING, /* the head is out, pieces are sent as they come */
    CN_REQUEST_STARVED,   /* streaming, suspended until the next piece comes */
    CN_REQUEST_ANSWERED,  /* the whole answer is libmicrohttpd's */
    CN_REQUEST_BROKEN,    /* no answer can be sent: the connection must end */
};

struct cn_http_request {
    uint32_t magic;
    uint8_t state; /* enum cn_http_state */
    bool mhd_done; /* libmicrohttpd does not know it any more; `mhd` and `conn` are gone */
    bool held;     /* somebody will answer it */
    bool close;    /* the connection ends with the answer */
    bool body_on_heap;
    bool lingering; /* parked, but not suspended: see http_listener.c */
    struct cn_arena arena;
    struct cn_http_listener *listener;
    struct cn_http_conn *conn;
    struct MHD_Connection *mhd;

    bool is_http_1_1, has_folded;
    unsigned method;                 /* CN_HTTP_... bit */
    struct cn_str method_word, path; /* path as sent; libmicrohttpd's until it is done */
    uint32_t n_headers, n_query;
    struct cn_header *headers;     /* bytes are libmicrohttpd's until it is done */
    struct cn_header *query;       /* raw names and values, likewise */
    const struct cn_http_api *api; /* of the listener's, the one that has its path */
    struct cn_route_match match;
    size_t head_bytes; /* what its line and headers take of the connection's memory */
    struct cn_http_framing framing;
    char *body;
    size_t body_len, body_cap;
    uint64_t swallowed;

    char id[37];              /* x-request-id */
    struct cn_str echo_name;  /* sequence header as the client spelt it */
    bool echo_short;          /* the server made the id: tell it as Continuo-Sequence, too */
    struct cn_str echo_value; /* the id, once the answer says it; empty: no such header */
    const char *restarted;    /* Continuo-Sequence-Restarted: which clock closed the one before */
    const char *allow;        /* Allow header of a 405 */
    const char *codings; /* Accept-Encoding header of the answer: what its body might have had */
    bool plain;          /* its answer is not compressed, whatever the client takes */
    const char *json_length; /* Inference-Header-Content-Length of the answer; NULL: none */
    const char *new_session, *closed_session; /* values of SageMaker's headers; NULL: none */
    /* Called when the client is gone while the request is held, at most once. */
    void (*on_gone)(struct cn_http_request *request);
    /* The client took so many bytes of a streamed answer; NULL: nobody wants to know. */
    void (*on_taken)(struct cn_http_request *request, size_t bytes);
    void *call; /* of whoever holds it */

    /* For the access log; the texts are the arena's. */
    uint64_t begun_us, answer_bytes;
    unsigned status; /* 0: no answer yet */
    const char *model, *version;
    struct cn_str sequence;
    bool replayed;          /* the answer is a stored one */
    uint64_t step;          /* that was committed; 0: none, or not known yet */
    uint64_t expected_step; /* of a step that was refused for its number: the right one; else 0 */

    /* Pieces of the answer, freed with the request or once sent; linked by msg.next. */
    struct cn_answer_box *boxes, **boxes_end; /* end: where the next one is hung in */
    size_t piece_sent;                        /* bytes of the first piece that are sent */
    bool last_piece_came;
};

/* The headers of a request are there; the caller then fills `is_http_1_1` ... `head_bytes`. */
struct cn_http_request *cn_http_request_create(struct cn_http_conn *conn,
                                               struct MHD_Connection *mhd);
/* Checks headers and announced length. It may answer already. */
void cn_http_request_begin(struct cn_http_request *request);
/* A part of the body. False: the connection must end now. */
bool cn_http_request_body(struct cn_http_request *request, const char *bytes, size_t len);
/* The request is there in full: finds and calls its function. Not answered afterwards means: its
 * connection must be suspended. */
void cn_http_request_end(struct cn_http_request *request);
/* libmicrohttpd is done with it, well or not. */
void cn_http_request_completed(struct cn_http_request *request);
/* The client closed its side of the connection. */
void cn_http_request_peer_closed(struct cn_http_request *request);
struct cn_http_request *cn_http_request_cast(void *request);

/* Somebody takes it upon himself to answer later: `on_gone` may be NULL. */
void cn_http_request_hold(struct cn_http_request *request, void *call,
                          void (*on_gone)(struct cn_http_request *request));
/* ... and is done with it. It may be freed by this. */
void cn_http_request_release(struct cn_http_request *request);

static inline struct cn_str
cn_http_request_body_str(const struct cn_http_request *request)
{
    return (struct cn_str){request->body, request->body_len};
}

#endif
