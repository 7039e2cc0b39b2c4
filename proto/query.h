/* proto/query.h - listing, reading and writing stored sequences: the frames QUERY and RESULT.
 *
 * A QUERY asks a worker to list stored sequences, to read one or to write one. The worker handles
 * QUERYs, rows and CLOSEs in the order in which they were sent. It handles a QUERY between two
 * batches, so it reads what a committed step has left, and answers it with one RESULT.
 *
 * A record travels as bytes that only workers understand (store/record/record.h).
 */
#ifndef CN_PROTO_QUERY_H
#define CN_PROTO_QUERY_H

#include "proto/frame.h"

enum cn_query_op { CN_QUERY_LIST = 1, CN_QUERY_READ = 2, CN_QUERY_WRITE = 3 };

enum cn_query_flags {
    /* LIST: open sequences, tombstones, or both. */
    CN_QUERY_OPEN = 1u << 0,
    CN_QUERY_CLOSED = 1u << 1,
    /* READ: return the record, too. Then only an open sequence can be read; others fail with
     * CN_E_SEQUENCE_UNKNOWN, _EXPIRED or _ENDED, as a step of them would. Without this flag
     * tombstones are shown. */
    CN_QUERY_RECORD = 1u << 2,
    /* WRITE: an open sequence of this id is closed and replaced; without the flag it is
     * CN_E_CONFLICT. */
    CN_QUERY_REPLACE = 1u << 3,
    /* WRITE: the sequence moves, so it keeps its times and its last job, and the server's retry of
     * its last step is answered. Without the flag its idle time and lifetime begin anew, and only
     * a client's idempotency key is kept. */
    CN_QUERY_MOVE = 1u << 4,
    /* WRITE: the record is a copy under another id, so the last step's key and answer, which belong
     * to the original, are not kept. */
    CN_QUERY_FORK = 1u << 5,
    /* READ: return the state as JSON text, for people. Nothing for a tombstone. */
    CN_QUERY_STATE = 1u << 6
};

/* The flags that each operation may have. */
#define CN_QUERY_LIST_FLAGS (CN_QUERY_OPEN | CN_QUERY_CLOSED)
#define CN_QUERY_READ_FLAGS (CN_QUERY_RECORD | CN_QUERY_STATE)
#define CN_QUERY_WRITE_FLAGS (CN_QUERY_REPLACE | CN_QUERY_MOVE | CN_QUERY_FORK)

#define CN_QUERY_LIMIT_MAX 10000 /* sequences that one RESULT lists */

struct cn_query {
    uint64_t query_id; /* RESULT repeats it */
    enum cn_query_op op;
    uint32_t flags;            /* enum cn_query_flags */
    uint32_t limit;            /* LIST: sequences, 1 to CN_QUERY_LIMIT_MAX; else 0 */
    uint64_t min_idle_ms;      /* LIST: only sequences without a step for this time */
    uint64_t max_bytes;        /* limit of the RESULT; READ of a larger record: CN_E_TOO_LARGE */
    struct cn_str sequence_id; /* LIST: list the sequences after this id; empty: from the start */
    struct cn_str prefix;      /* LIST: only ids that begin with this; else empty */
    struct cn_str record;      /* WRITE: the encoded record */
};

enum cn_info_flags {
    CN_INFO_CLOSED = 1u << 0,    /* a tombstone */
    CN_INFO_EXPIRED = 1u << 1,   /* expired, but not closed yet */
    CN_INFO_HAS_STATE = 1u << 2, /* its last step left a state */
    CN_INFO_HAS_KEY = 1u << 3,   /* the last step had an idempotency key */
    CN_INFO_HAS_ANSWER = 1u << 4 /* its answer can be replayed */
};

/* What RESULT says of a stored sequence. Times are wall-clock milliseconds since 1970. */
struct cn_sequence_info {
    struct cn_str id;
    uint32_t flags;            /* enum cn_info_flags */
    uint32_t schema;           /* the handler's version of the state's shape */
    uint64_t generation, step; /* step: the number of committed steps */
    uint64_t opened_wall_ms, last_wall_ms, closed_wall_ms;
    uint64_t expires_wall_ms; /* open: when it expires, 0: never; closed: when it is forgotten */
    uint64_t state_bytes, answer_bytes;
    uint8_t close_reason; /* enum cn_close_reason; 0: open */
};

/* READ and WRITE return one sequence, LIST those that it found. */
struct cn_query_result {
    uint64_t query_id;
    int32_t error_code; /* CN_E_..., 0: done */
    struct cn_str message;
    uint32_t n_sequences;
    struct cn_sequence_info *sequences;
    struct cn_str next;   /* LIST: the sequence_id of the next LIST; empty: the list is complete */
    struct cn_str record; /* READ with CN_QUERY_RECORD: the encoded record; with _STATE: JSON */
};

void cn_frame_put_query(struct cn_buf *buf, const struct cn_query *query);
void cn_frame_put_result(struct cn_buf *buf, const struct cn_query_result *result);

/* Encoders and decoders follow the rules of proto/frame.h: put functions set buf->failed; get
 * functions return 0, CN_E_PROTOCOL or CN_E_OUT_OF_MEMORY, and borrow strings from the frame. */
int cn_frame_get_query(const struct cn_frame *frame, struct cn_query *out, struct cn_error *err);
int cn_frame_get_result(const struct cn_frame *frame, struct cn_arena *arena,
                        struct cn_query_result *out, struct cn_error *err);

#endif
