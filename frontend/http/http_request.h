/* frontend/http/http_request.h - one HTTP request: what came, how far it is, and who still needs
 * it.
 *
 * A request lives in its own arena. It is freed when its connection is done with it and nobody
 * holds it any more. A holder is a job or a management call that will answer the request later.
 * Owned by the loop thread.
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
#include "frontend/http/http_listener.h"
#include "frontend/http/route.h"
#include "frontend/http/transport/http_conn.h"
#include "frontend/intake/intake.h"
#include "frontend/intake/request_bytes.h"
#include "frontend/intake/unread.h"
#include "proto/message.h"

struct cn_answer_box;
struct cn_compressor;
struct cn_key;
struct cn_ws_stream;

/* This many bytes of connection-memory are kept for the head of the answer: enough for the server's
 * own headers with the longest sequence id. The handler's headers may take what the head of the
 * request has left. */
#define CN_HTTP_ANSWER_ROOM 1024
/* The server's own headers that scripts of other origins may read, where such are allowed. */
#define CN_HTTP_EXPOSED_HEADERS                                                                    \
    "Continuo-Error, Continuo-Expected-Step, Continuo-Replayed, Continuo-Sequence, "               \
    "Continuo-Sequence-Restarted, Continuo-Sequence-Step, Inference-Header-Content-Length, "       \
    "Retry-After, traceparent, ts-request-sequence-id, x-request-id"

/* How far a request is. */
enum cn_http_state {
    CN_REQUEST_BODY,        /* the headers are checked, the body is coming */
    CN_REQUEST_HANDLING,    /* its route's function is running */
    CN_REQUEST_PARKED,      /* waits for its answer */
    CN_REQUEST_STREAMING,   /* the head of a stream is out, pieces are sent as they come */
    CN_REQUEST_STARVED,     /* streaming, and waits for the next piece */
    CN_REQUEST_COMPRESSING, /* the answer is compressed while it is sent */
    CN_REQUEST_ANSWERED,    /* the answer is complete; bytes of it may wait for the socket */
};

struct cn_http_request {
    uint8_t state; /* enum cn_http_state */
    bool held;     /* a job or a call holds it and will answer it */
    bool close;    /* the connection ends with the answer */
    bool body_on_heap;
    struct cn_arena arena;
    struct cn_http_listener *listener;
    struct cn_http_conn *conn; /* NULL: it is done with the request, or gone */
    struct cn_str head;        /* as it was sent; the texts below point into it */

    bool is_http_1_1, has_folded;
    unsigned method;                 /* CN_HTTP_... bit */
    struct cn_str method_word, path; /* as sent */
    uint32_t n_headers, n_query;
    struct cn_header *headers;     /* CN_HTTP_SPARE_HEADERS free places lie before the first one */
    struct cn_header *query;       /* names and values as sent */
    const struct cn_http_api *api; /* the interface at this address that has the path */
    const struct cn_key *key;      /* the named key that it showed; NULL: it needs none */
    bool by_certificate; /* the client's certificate lets it in, and no key that it sent */
    struct cn_route_match match;
    size_t head_bytes; /* bytes of connection-memory that the request's head takes */
    struct cn_http_framing framing;
    char *body;
    size_t body_len, body_cap;
    struct cn_request_bytes body_bytes; /* what it counts among the bytes of all requests */

    char id[CN_REQUEST_ID_NEW]; /* x-request-id */
    struct cn_str echo_name;    /* name of the sequence header as the client wrote it */
    bool echo_short;            /* the server made the id: send it as Continuo-Sequence, too */
    struct cn_str echo_value;   /* the sequence id for the answer; empty: no such header */
    const char *traceparent;    /* of the answer, if the step is traced; or NULL */
    const char *restarted; /* Continuo-Sequence-Restarted: which limit closed the sequence before */
    const char *allow;     /* Allow header of a 405 */
    const char *location;  /* Location header of a redirection, or NULL */
    const char *codings; /* Accept-Encoding header of the answer, for a body in an unknown coding */
    bool plain;          /* never compress its answer */
    const char *json_length; /* Inference-Header-Content-Length of the answer, or NULL */
    const char *new_session, *closed_session; /* values of SageMaker's headers, or NULL */
    /* Is called, at most once, when the client is gone while the request is held. */
    void (*on_gone)(struct cn_http_request *request);
    /* Is called when the client took this many bytes of a streamed answer; NULL: nobody needs
     * it. */
    void (*on_taken)(struct cn_http_request *request, size_t bytes);
    void *call;              /* the holder's own pointer */
    uint64_t ticket_ends_ms; /* of the certificate with which its ticket was made; 0: it has none */
    struct cn_ws_stream *stream; /* a stream that waits until the connection is its */
    /* Is called when the answer 101 has left (cn_http_answer_upgrade). */
    void (*on_upgraded)(struct cn_http_request *request, struct cn_str extra);

    /* For the access log; the texts lie in the arena. */
    uint64_t begun_us, answer_bytes;
    unsigned status; /* 0: no answer yet */
    const char *model, *version;
    struct cn_str sequence;
    bool replayed; /* the answer was stored with an earlier try of the step */
    uint64_t step; /* number of the step that was committed; 0: none, or not known yet */
    /* the right step number, when a step was refused for its number; else 0 */
    uint64_t expected_step;

    /* Pieces of the answer, linked by msg.next. Each is freed once it is sent, or with the
     * request. */
    struct cn_answer_box *boxes, **boxes_end; /* end: where the next one is linked */
    bool is_piece_out;                        /* the first piece is being sent from its box */
    bool last_piece_came;
    char *answer;                     /* the bytes of an answer that it has taken over, or NULL */
    struct cn_compressor *compressor; /* makes the answer while it is sent, or NULL */
    struct cn_unread unread;          /* bytes of the answer that the client has not read */
};

/* What is done with a request while it is read. */
extern const struct cn_http_calls cn_http_request_calls;

/* The client has closed its side of the connection. */
void cn_http_request_peer_closed(struct cn_http_request *request);

/* The caller will answer later, and keeps the request alive until it calls release. `call` is the
 * caller's own pointer; `on_gone` may be NULL. */
void cn_http_request_hold(struct cn_http_request *request, void *call,
                          void (*on_gone)(struct cn_http_request *request));
/* The holder is done with the request, which may be freed by this call. */
void cn_http_request_release(struct cn_http_request *request);

static inline struct cn_str
cn_http_request_body_str(const struct cn_http_request *request)
{
    return (struct cn_str){request->body, request->body_len};
}

#endif
