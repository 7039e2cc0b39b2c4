/* store/record/record.h - what the store holds for one sequence: its state, its last answer, its
 * times.
 *
 * One value, written in one transaction, is what makes a step happen at most once: a job that is
 * sent again and finds its own number in `last_job` gets the stored answer and changes nothing. A
 * closed sequence leaves a tombstone: the same record without state, with the reason.
 *
 * Layout of format 6, numbers little-endian or as in core/text/varint.h. A varint has as many bytes
 * as it needs, but the step 4 at least, last_wall_ms 5, closed_wall_ms and expires_wall_ms 6 each;
 * these four are also read in as many as they need:
 *     0  u32  magic "CNR1"         4  u16  format         6  u16  flags, enum cn_record_flags; bit 14: keys
 *     8  u64  last_job            16  u32  state bytes
 *    20  varints: generation less opened_wall_ms, step, opened_wall_ms, last_wall_ms less that,
 *        closed_wall_ms, expires_wall_ms less last_wall_ms (differences: modulo 2^64, as twice the number or,
 *        below 0, one less than twice its amount), schema, close_reason, answer status, answer_flags,
 *        answer_bytes, content type, header count, header bytes, chunk count, chunk bytes (each chunk: u32
 *        length, bytes), body bytes
 *        CN_RECORD_ASKED only: u64 request_hash
 *        keys only: u8 count (from 1 on), for each 8 bytes of its hash, the newest first
 *        content type, headers (each: u16 length, name, u32 length, value), chunks, body, state
 *   end  u64  XXH3 of all before
 * The content type is twice its length, or one of those that handlers mostly have, which has no
 * bytes: 1 text/plain; charset=utf-8, 3 application/json, 5 application/octet-stream. A plain
 * step's head takes some 50 bytes: with a small state that is half of what is written.
 *
 * XXH3 and not a CRC32: 64 bits, at many bytes a cycle without special instructions, and no code of
 * our own; SipHash was 1 us a KiB of state. It finds damage, it is no protection from forgers.
 */
#ifndef CN_STORE_RECORD_RECORD_H
#define CN_STORE_RECORD_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/text/str.h"

#define CN_RECORD_FORMAT 6 /* a record of another one is refused */
#define CN_KEY_HASH_BYTES 8
#define CN_RECORD_KEYS_MAX 255

enum cn_record_flags {
    CN_RECORD_TOMBSTONE = 1u << 0,
    CN_RECORD_HAS_STATE = 1u << 1,
    CN_RECORD_HAS_ANSWER = 1u << 2,
    CN_RECORD_ANSWER_TOO_LARGE = 1u << 3, /* to keep; answer_bytes says how large */
    CN_RECORD_ANSWER_STREAMED = 1u << 4,  /* it was still to be made when the step was committed */
    CN_RECORD_PENDING = 1u << 5,          /* imported from another version, which may still have it;
                                           * gone with the next step */
    CN_RECORD_KEYED =
        1u << 6, /* the last step had an idempotency key, the first of `keys`; ASKED, too */
    CN_RECORD_ASKED = 1u << 7, /* request_hash is set: the last step had a key or a number */
};

/* Byte strings are borrowed, when encoding and when decoded. */
struct cn_record {
    uint32_t flags;
    uint64_t generation;
    uint64_t step;     /* steps committed in this generation */
    uint64_t last_job; /* that committed the last of them */
    uint64_t opened_wall_ms, last_wall_ms;
    uint64_t closed_wall_ms; /* tombstone; else 0 */
    uint64_t
        expires_wall_ms; /* live: under the limits of its last step, 0: never; tombstone: when it
                               * is forgotten. For those who look at a store without its model */
    uint32_t schema;
    uint8_t close_reason; /* enum cn_close_reason of proto/frame.h; 0 while live */

    /* The last answer. */
    uint16_t status;
    uint32_t answer_flags; /* CN_ANSWER_... that it carried */
    uint64_t answer_bytes; /* chunks and body */
    uint32_t n_headers, n_chunks;
    struct cn_str content_type, headers, chunks, body;

    /* The idempotency keys of the last keyed steps under this id, the newest first:
     * CN_KEY_HASH_BYTES of each one's hash, CN_RECORD_KEYS_MAX of them at most. */
    struct cn_str keys;
    uint64_t request_hash; /* of what the last step asked */

    struct cn_str state;
};

/* Was the last step sent with an idempotency key? */
bool cn_record_has_key(const struct cn_record *record);
/* The place of that hash among them, 0 is the newest's; -1: it is not there. */
int cn_keys_find(struct cn_str keys, const unsigned char hash[CN_KEY_HASH_BYTES]);
/* Of the answer only what the flags say is left. */
void cn_record_drop_answer(struct cn_record *record);

/* Appends to `out`; CN_E_STATE_STORE when state or answer are over 4 GiB or memory runs out. */
int cn_record_encode(const struct cn_record *record, struct cn_buf *out, struct cn_error *err);

/* The same in two halves, for a state that is encoded right behind the rest: `begin` appends all
 * but the state, the caller appends that, `end` completes it. `at`: out->len before. */
int cn_record_begin(const struct cn_record *record, struct cn_buf *out, struct cn_error *err);
int cn_record_end(struct cn_buf *out, size_t at, struct cn_error *err);

/* Strict: every length, flag and the checksum must fit. CN_E_STATE_STORE says what doesn't.
 * `out` borrows from `bytes`. */
int cn_record_decode(struct cn_str bytes, struct cn_record *out, struct cn_error *err);

/* As decode, but only the fixed part, without the checksum: for those who need the numbers only.
 * Byte strings of `out` are empty. */
int cn_record_peek(struct cn_str bytes, struct cn_record *out, struct cn_error *err);
/* How long the state is in bytes that cn_record_peek accepted. */
uint32_t cn_record_state_bytes(struct cn_str bytes);

/* Takes the next chunk off the front of record.chunks. Returns 1, or 0 at the end. */
int cn_record_next_chunk(struct cn_str *chunks, struct cn_str *out);

/* Appends one chunk in the form that `chunks` has. */
void cn_record_put_chunk(struct cn_buf *out, struct cn_str chunk);

#endif
