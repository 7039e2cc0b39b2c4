/* store/record/record.h - the record, which is what a store holds of one sequence: its state, its
 * last answer and its times.
 *
 * All of it is one value that is written in one transaction. That is what makes a step happen at
 * most once: a job that is sent again finds its own number in `last_job`, gets the stored answer
 * and changes nothing. A closed sequence leaves a tombstone, which is the same record without a
 * state and with the reason of the close.
 *
 * Layout of format 6. Numbers are little-endian, or varints as in core/text/varint.h:
 *   offset  0  u32  magic "CNR1"
 *           4  u16  format
 *           6  u16  flags, enum cn_record_flags; bit 14: there are keys; bit 13: there are earlier
 *                   answers
 *           8  u64  last_job
 *          16  u32  bytes of the state
 *          20  varints, in this order: generation minus opened_wall_ms, step, opened_wall_ms,
 *              last_wall_ms minus opened_wall_ms, closed_wall_ms, expires_wall_ms minus
 *              last_wall_ms, schema, close_reason, answer status, answer_flags, answer_bytes,
 *              content type, header count, header bytes, chunk count, chunk bytes, body bytes
 *              u64 request_hash, only with CN_RECORD_ASKED
 *              u8 number of keys and the 8 bytes of each key's hash, newest first; only with keys
 *              u32 bytes of the earlier answers, only if there are any
 *              content type, headers (each: u16 length, name, u32 length, value), chunks (each:
 *              u32 length, bytes), body, earlier answers (each: u32 length, bytes), state
 *         end  u64  XXH3 of all bytes before it
 *
 * A varint has as many bytes as its number needs, with four exceptions: the step has at least 4
 * bytes, last_wall_ms 5, closed_wall_ms and expires_wall_ms 6 each (record.c says why). These four
 * are also accepted in fewer bytes. Differences are taken modulo 2^64 and folded, so that a small
 * negative one is a small number, too: 0, -1, 1, -2 become 0, 1, 2, 3. The content type is an even
 * number, twice its length, or an odd number for one of the three that most handlers use and that
 * then take no bytes: 1 is text/plain; charset=utf-8, 3 application/json, 5
 * application/octet-stream. The head of a plain step takes about 50 bytes, which is half of what is
 * written when the state is small.
 *
 * The checksum is XXH3 and not a CRC32 because it has 64 bits, needs no code of our own, and hashes
 * several bytes a cycle without special instructions; SipHash took 1 us for each KiB of state. It
 * finds damage. It does not protect from forgery. */
#ifndef CN_STORE_RECORD_RECORD_H
#define CN_STORE_RECORD_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/text/str.h"

#define CN_RECORD_FORMAT 6 /* a record with another format is refused */
#define CN_KEY_HASH_BYTES 8
#define CN_RECORD_KEYS_MAX 255

enum cn_record_flags {
    CN_RECORD_TOMBSTONE = 1u << 0,
    CN_RECORD_HAS_STATE = 1u << 1,
    CN_RECORD_HAS_ANSWER = 1u << 2,
    /* the answer was too large to keep; answer_bytes has its size */
    CN_RECORD_ANSWER_TOO_LARGE = 1u << 3,
    /* the answer was still being made when the step was committed */
    CN_RECORD_ANSWER_STREAMED = 1u << 4,
    /* Imported from another version, which may still have the sequence; the next step clears this
     * flag. In a shared store with TOMBSTONE: a claim. A node is about to open a sequence here, and
     * asks the other versions first. What else the tombstone says still holds; one at step 0 stands
     * where nothing was. */
    CN_RECORD_PENDING = 1u << 5,
    /* the last step had an idempotency key, the first of `keys`; ASKED is set as well */
    CN_RECORD_KEYED = 1u << 6,
    /* request_hash is set: the last step had an idempotency key or a step number */
    CN_RECORD_ASKED = 1u << 7,
};

/* The fields of a record. Byte strings are borrowed: from the caller when a record is encoded, from
 * the encoded bytes when it is decoded. */
struct cn_record {
    uint32_t flags;
    uint64_t generation;
    uint64_t step;     /* steps committed in this generation */
    uint64_t last_job; /* the number of the job that committed the last step */
    uint64_t opened_wall_ms, last_wall_ms;
    uint64_t closed_wall_ms; /* when the sequence was closed; 0 while it is live */
    /* when a live sequence expires by the limits at its last step (0: never), or when a tombstone
     * is forgotten. This is for programs that look at a store without its model */
    uint64_t expires_wall_ms;
    uint32_t schema;
    uint8_t close_reason; /* enum cn_close_reason of proto/frame.h; 0 while live */

    /* The last answer. */
    uint16_t status;
    uint32_t answer_flags; /* the CN_ANSWER_... flags that the answer carried */
    uint64_t answer_bytes; /* the size of chunks and body together */
    uint32_t n_headers, n_chunks;
    struct cn_str content_type, headers, chunks, body;
    /* The answers of the steps before the last one, the newest first, if they are kept: each is a
     * chunk that holds an encoded record (worker/batch/kept_answers.h). */
    struct cn_str earlier;

    /* The hashes of the idempotency keys that the last keyed steps of this id had, the newest
     * first: CN_KEY_HASH_BYTES each, at most CN_RECORD_KEYS_MAX of them. */
    struct cn_str keys;
    uint64_t request_hash; /* a hash of the last step's request */

    struct cn_str state;
};

/* Was the last step sent with an idempotency key? */
bool cn_record_has_key(const struct cn_record *record);
/* The position of a hash in `keys`, where 0 is the newest; -1 if it is not there. */
int cn_keys_find(struct cn_str keys, const unsigned char hash[CN_KEY_HASH_BYTES]);
/* Empties the answer's headers, chunks and body, and the earlier answers. The flags and sizes that
 * describe the answer stay. */
void cn_record_drop_answer(struct cn_record *record);

/* Appends the encoded record to `out`. CN_E_STATE_STORE: the state or the answer is over 4 GiB, or
 * memory runs out. */
int cn_record_encode(const struct cn_record *record, struct cn_buf *out, struct cn_error *err);

/* Encodes a record in two halves, for a state that is encoded directly behind the rest:
 * cn_record_begin appends everything but the state, the caller appends the state, and cn_record_end
 * completes the record. `at` is out->len before cn_record_begin. Errors are those of
 * cn_record_encode. */
int cn_record_begin(const struct cn_record *record, struct cn_buf *out, struct cn_error *err);
int cn_record_end(struct cn_buf *out, size_t at, struct cn_error *err);

/* Decodes a record strictly: every length, flag and the checksum must be right. CN_E_STATE_STORE
 * says what is wrong. `out` borrows from `bytes`. */
int cn_record_decode(struct cn_str bytes, struct cn_record *out, struct cn_error *err);

/* The format of a record, which may be another one than ours; 0: the bytes are not a record. */
unsigned cn_record_format(struct cn_str bytes);

/* Decodes only the numbers of a record and does not compare its checksum, for callers that need no
 * more. The byte strings of `out` are empty. */
int cn_record_peek(struct cn_str bytes, struct cn_record *out, struct cn_error *err);
/* The length of the state in bytes that cn_record_peek accepted. */
uint32_t cn_record_state_bytes(struct cn_str bytes);

/* Takes the next chunk off the beginning of record.chunks. Returns 1, or 0 at the end. */
int cn_record_next_chunk(struct cn_str *chunks, struct cn_str *out);

/* Appends one chunk in the form that record.chunks has. If memory runs out, or the chunk is over 4
 * GiB, out->failed is set. */
void cn_record_put_chunk(struct cn_buf *out, struct cn_str chunk);

#endif
