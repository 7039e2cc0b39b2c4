/* bench/stream.h - handshake and messages of the load tool's WebSocket streams (docs/streams.md).
 *
 * Messages have the mask 0, so a message's bytes go as they are. The thread is that of the
 * connection. */
#ifndef CN_BENCH_STREAM_H
#define CN_BENCH_STREAM_H

#include "bench/connection.h"

/* Sends the handshake, which is in c->request, and waits until the stream is open. Returns 0, or -1
 * with errno set: EPROTO if the server answers anything but 101. */
int stream_open(struct connection *c, const struct request_template *t);
/* Sends a step whose body is the digit. Returns 0, or -1 with errno set. */
int stream_send(struct connection *c, const struct request_template *t, char digit);
/* Looks at what has arrived. Returns 1 if `out` is the answer of the step, 0 if more must come, or
 * -1 with `*why` if the server has closed the stream or sent something else. Answers pings. */
int stream_answer(struct connection *c, const struct request_template *t, struct answer *out,
                  const char **why);

#endif
