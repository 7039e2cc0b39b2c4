/* frontend/intake/request_bytes.h - bounds the bytes of all requests that the server holds at the
 * same time: while they arrive, while their steps wait, and while a worker has them.
 *
 * One request is bounded by its protocol (max-request-size and max-v2-request-size), but many
 * clients that stop before their last byte would hold as many requests. The limit is for the whole
 * process (max-held-requests). The request that would pass it is refused, and its client is told to
 * try again. Requests are counted in steps of CN_REQUEST_BYTES_STEP. What is below one step is not
 * counted: connections, streams and calls are bounded, and with them these bytes. Any thread.
 */
#ifndef CN_FRONTEND_INTAKE_REQUEST_BYTES_H
#define CN_FRONTEND_INTAKE_REQUEST_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/errors/error.h"

#define CN_REQUEST_BYTES_STEP 65536

/* A part of a request. Zeroed: nothing is counted. */
struct cn_request_bytes {
    size_t counted;
};

/* The limit for the process, before the loops run. */
void cn_request_bytes_set_limit(uint64_t bytes);
/* The request has `now` bytes. Returns false, and counts as many as before, if all requests
 * together would be too large. */
bool cn_request_bytes_take(struct cn_request_bytes *bytes, size_t now);
/* Would a request of this size pass the limit? Nothing is counted. */
bool cn_request_bytes_fit(size_t len);
/* Moves what `from` has counted to `to`, which had counted nothing. */
void cn_request_bytes_move(struct cn_request_bytes *to, struct cn_request_bytes *from);
/* The request is gone, or has given its memory back. */
void cn_request_bytes_done(struct cn_request_bytes *bytes);
/* CN_E_UNAVAILABLE, with a message that names the option. Returns the code. */
int cn_request_bytes_refuse(struct cn_error *err);

#endif
