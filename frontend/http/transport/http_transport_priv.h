/* frontend/http/transport/http_transport_priv.h - between the files of this folder, http_answer.c
 * and http_request.c. On the loop of the connection. */
#ifndef CN_FRONTEND_HTTP_TRANSPORT_HTTP_TRANSPORT_PRIV_H
#define CN_FRONTEND_HTTP_TRANSPORT_HTTP_TRANSPORT_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/memory/buf.h"
#include "core/text/str.h"
#include "frontend/http/http_request.h"
#include "frontend/http/transport/http_conn.h"

struct cn_error;

/* This many bytes are read at once, unless they are a large body's. */
#define CN_HTTP_IN_BYTES 16384
/* This many connections above --max-connections are accepted, to tell them that the server is full;
 * further ones wait in the kernel. */
#define CN_HTTP_SURPLUS_MAX 32

/* --- http_tls.c */

/* TLS of a listener's connections. */
int cn_http_tls_start(struct cn_http_listener *listener, struct cn_error *err);
void cn_http_tls_stop(struct cn_http_listener *listener);
/* Makes the connection's session. Returns false if there is no memory. */
bool cn_http_tls_begin(struct cn_http_conn *conn);
/* Goes on with the handshake. Afterwards `shaking_hands` is false if it is done, and `failed` is
 * true if the connection must end. */
void cn_http_tls_shake(struct cn_http_conn *conn);

/* --- http_input.c */

/* Reads and handles requests until nothing more can be read, or one waits for its answer. */
void cn_http_input_run(struct cn_http_conn *conn);

/* --- http_output.c */

/* Is everything sent? */
static inline bool
cn_http_out_is_empty(const struct cn_http_conn *conn)
{
    return conn->out.kept.len == 0 && conn->out.body.len == 0 && conn->out.tail.len == 0;
}
/* What a connection is always watched for. */
#define CN_HTTP_EVENTS (EPOLLIN | EPOLLRDHUP | EPOLLET)
/* Watches whether the socket takes bytes, or does not watch that any more. */
void cn_http_out_watch(struct cn_http_conn *conn, bool on);
/* Sends these bytes, before which nothing but a new head may wait. What the socket does not take is
 * sent later: `head` is copied for that, and `body` only if `copies_body`; otherwise it must stay
 * in place until the request is completed, and so must `tail`. */
void cn_http_out_send(struct cn_http_conn *conn, struct cn_str head, struct cn_str body,
                      bool copies_body, struct cn_str tail);
/* Keeps the head of an answer that http_stream.c makes. It is sent at the end of this turn,
 * with the first bytes of the body. */
void cn_http_out_keep_head(struct cn_http_conn *conn, struct cn_str head);
/* Sends what waits, as long as the socket takes it. */
void cn_http_out_push(struct cn_http_conn *conn);
/* Refuses bytes that are not a request, so there is no record of one, and ends the connection.
 * `status` 0: that of the code. */
void cn_http_out_refuse(struct cn_http_conn *conn, int code, unsigned status, const char *message);

/* --- http_status.c */

/* The reason phrase of a status. */
const char *cn_http_reason(unsigned status);
/* Writes the header Date (RFC 9110, 6.6.1). */
void cn_http_put_date(struct cn_buf *out);
/* Writes an answer that no request asks for: it says why the client's bytes were refused. `status`
 * 0: that of the code. */
void cn_http_format_refusal(int code, unsigned status, const char *message, struct cn_buf *out);

/* --- http_stream.c */

/* Sends what waits, and what the present answer has more. */
void cn_http_out_run(struct cn_http_conn *conn);

/* --- http_head.c */

/* Begins the head of the request's answer. Headers are added next, and then one of the functions
 * below sends it. */
void cn_http_head_begin(struct cn_http_request *request, unsigned status);
/* Adds a header. It is left out if its value has a control character, which could end the line. */
void cn_http_tell(struct cn_http_request *request, struct cn_str name, struct cn_str value);
/* Does nothing if `value` is NULL. */
void cn_http_tell_text(struct cn_http_request *request, struct cn_str name, const char *value);
/* Does nothing if `value` is 0. */
void cn_http_tell_number(struct cn_http_request *request, struct cn_str name, uint64_t value);
/* Sends the head with a body whose length is known. `copies_body`: see cn_http_out_send(). */
void cn_http_head_send(struct cn_http_request *request, struct cn_str body, bool copies_body);
/* Sends the head with a body of two parts, which stay in place until the request is completed. */
void cn_http_head_send_two(struct cn_http_request *request, struct cn_str body, struct cn_str rest);
/* Sends only the head of an answer to HEAD, whose body would have this many bytes. */
void cn_http_head_send_alone(struct cn_http_request *request, uint64_t bytes);
/* Sends the answer 101, with these headers. */
void cn_http_head_send_upgrade(struct cn_http_request *request, const struct cn_header *headers,
                               uint32_t n);
/* Sends the head of an answer that http_stream.c makes. `next` is the request's state from
 * here on. */
void cn_http_head_send_open(struct cn_http_request *request, enum cn_http_state next);

/* Counts bytes that the client has yet to read. */
void cn_http_wait_for_reader(struct cn_http_request *request, size_t bytes);

/* Has the request no answer yet, and is its connection still there? */
static inline bool
cn_http_is_answerable(const struct cn_http_request *request)
{
    return request->conn && request->state <= CN_REQUEST_PARKED;
}

/* Does the answer end with its head? */
static inline bool
cn_http_is_only_head(const struct cn_http_request *request, unsigned status)
{
    return request->method == CN_HTTP_HEAD || status == 204 || status == 304;
}

/* --- http_error.c */

/* Adds an error's headers. `own_status` is the status that Continuo itself uses: in TorchServe's
 * dialect 503 also stands for errors that no repetition heals (a handler's bug, a closed sequence),
 * and those must not have a Retry-After. */
void cn_http_add_error_headers(struct cn_http_request *request, int code, unsigned own_status,
                               uint32_t retry_after_s);
/* Answers with TorchServe's error body. `status` is the handler's own choice; 0 stands for the
 * code's status. */
void cn_http_answer_error_as(struct cn_http_request *request, int code, unsigned status,
                             const char *message, uint32_t retry_after_s);

/* --- http_record.c */

/* Makes the record of a request whose head has come. */
struct cn_http_request *cn_http_request_create(struct cn_http_conn *conn, struct cn_str head);
/* The connection is done with the request: its holder is told, or the record is freed. */
void cn_http_record_let_go(struct cn_http_request *request);

/* --- http_conn.c */

/* GnuTLS is called at most this often in one go: each time it may find a message that is not for
 * us. */
#define CN_HTTP_TLS_TRIES 32
/* GnuTLS has returned `rc`: must it be called again at once? */
bool cn_http_conn_must_go_on(const struct cn_http_conn *conn, ssize_t rc);

/* The answer was sent: the request is completed, and the connection is ready for the next one, or
 * ends, or has become something else. */
void cn_http_conn_answered(struct cn_http_conn *conn);

#endif
