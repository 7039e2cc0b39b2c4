/* frontend/intake/compress.h - compressed answers (gzip or deflate, where the client accepts them)
 * and compressed request bodies.
 *
 * Each call compresses a bounded number of bytes, so that a large answer does not hold up its loop.
 * An object belongs to one request; different threads may use different objects.
 */
#ifndef CN_FRONTEND_INTAKE_COMPRESS_H
#define CN_FRONTEND_INTAKE_COMPRESS_H

#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/text/str.h"
#include "proto/message.h"

enum cn_coding { CN_CODING_IDENTITY, CN_CODING_GZIP, CN_CODING_DEFLATE };

/* Chooses the coding that Accept-Encoding asks for: the one with the highest q-value, and the first
 * one among equals. `*` and unknown codings are ignored. Returns identity when there is no such
 * header or it is malformed. */
enum cn_coding cn_coding_choose(const struct cn_header *headers, uint32_t n);
/* The coding's name in headers, for example "gzip". */
const char *cn_coding_name(enum cn_coding coding);

/* Decompresses a request's body, which may be a zlib or a gzip stream, and appends the result to
 * `out`. Returns CN_E_BAD_REQUEST when the body is not such a stream, ends early, has bytes after
 * its end, or becomes larger than `max_bytes`. */
int cn_inflate(struct cn_str body, size_t max_bytes, struct cn_buf *out, struct cn_error *err);

struct cn_compressor;

/* Makes a compressor for `body`, which must stay in place until cn_compressor_destroy(). `coding`
 * must not be identity. Returns NULL when there is not enough memory. */
struct cn_compressor *cn_compressor_create(enum cn_coding coding, struct cn_str body);
/* Writes the next 1 to `room` compressed bytes to `out` and returns their number; 0 means that all
 * have been returned. One call reads at most CN_COMPRESS_STEP_BYTES of the body. */
#define CN_COMPRESS_STEP_BYTES 65536
size_t cn_compressor_read(struct cn_compressor *compressor, char *out, size_t room);
void cn_compressor_destroy(struct cn_compressor *compressor);

#endif
