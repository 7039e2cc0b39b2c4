/* management/api/exported_sequence.h - a sequence outside of a server: what an export gives and an
 * import takes.
 *
 * Format 1, little-endian; str16 and str32 are a length of 2 or 4 bytes and the bytes:
 *   8 bytes  magic: CN_EXPORTED_SEQUENCE_MAGIC, which shows a transfer that changed line ends
 *   u16      format                      u16   zero
 *   u64      length of the whole file
 *   u64      exported (wall ms)
 *   str16    model   str16 version   str16 sequence id
 *   u64      generation   u64 step   u64 opened   u64 last step (wall ms)   u32 schema of the state
 *   str32    record: state, last answer and what identifies its step, for workers
 *            (store/record/record.h)
 *   32 bytes BLAKE2b-256 of all before
 * The checksum finds damage; it does not protect from somebody who makes a file of their own.
 */
#ifndef CN_MANAGEMENT_API_EXPORTED_SEQUENCE_H
#define CN_MANAGEMENT_API_EXPORTED_SEQUENCE_H

#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/text/str.h"

#define CN_EXPORTED_SEQUENCE_FORMAT 1
#define CN_EXPORTED_SEQUENCE_MAGIC "CNSEQ\r\n\x1a"
#define CN_EXPORTED_SEQUENCE_TYPE "application/vnd.continuo.sequence"

/* Strings are borrowed, both for encoding and after decoding. */
struct cn_exported_sequence {
    uint64_t exported_wall_ms;
    struct cn_str model, version, sequence_id;
    uint64_t generation, step, opened_wall_ms, last_wall_ms;
    uint32_t schema;
    struct cn_str record;
};

/* Appends the file to `out`; out->failed if there was no room. */
void cn_exported_sequence_encode(const struct cn_exported_sequence *envelope, struct cn_buf *out);
/* Decodes a file. CN_E_BAD_REQUEST: it is something else, of a newer format, cut, too long or
 * altered; the message says which, and what to do. */
int cn_exported_sequence_decode(struct cn_str bytes, struct cn_exported_sequence *out,
                                struct cn_error *err);

#endif
