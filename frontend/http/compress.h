/* frontend/http/compress.h - answers as gzip or deflate, where the client takes them, and bodies
 * that are.
 *
 * Works in steps of bounded size, so that a large answer does not hold up its loop. Any thread; an
 * object belongs to one request.
 */
#ifndef CN_FRONTEND_HTTP_COMPRESS_H
#define CN_FRONTEND_HTTP_COMPRESS_H

#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/text/str.h"
#include "proto/message.h"

enum cn_coding { CN_CODING_IDENTITY, CN_CODING_GZIP, CN_CODING_DEFLATE };

/* What Accept-Encoding asks for: the highest q, of equals the first; `*` and what we don't know
 * mean nothing. Without the header, or with one that is broken: identity. */
enum cn_coding cn_coding_choose(const struct cn_header *headers, uint32_t n);
/* "gzip" */
const char *cn_coding_name(enum cn_coding coding);

/* The whole of a request's body, taken out of its coding: a zlib or gzip stream, whichever it is.
 * CN_E_BAD_REQUEST: it is none, ends early, has bytes behind it, or holds over `max_bytes`. */
int cn_inflate(struct cn_str body, size_t max_bytes, struct cn_buf *out, struct cn_error *err);

struct cn_compressor;

/* `body` is borrowed until destroy. `coding` isn't identity. NULL: no memory. */
struct cn_compressor *cn_compressor_create(enum cn_coding coding, struct cn_str body);
/* The next bytes, 1 to `room`; 0: that was all. Reads CN_COMPRESS_STEP_BYTES of the body at
 * most. */
#define CN_COMPRESS_STEP_BYTES 65536
size_t cn_compressor_read(struct cn_compressor *compressor, char *out, size_t room);
void cn_compressor_destroy(struct cn_compressor *compressor);

#endif
