/* proto/message.h - what a request and an answer are, whatever protocol they came by.
 *
 * Plain structs of borrowed bytes. A row is one request of a batch; an answer
 * is one piece of what a handler gave back for a row.
 */
#ifndef CN_PROTO_MESSAGE_H
#define CN_PROTO_MESSAGE_H

#include <stdint.h>

#include "core/text/str.h"

#define CN_SEQUENCE_ID_MAX 256     /* bytes; at least 1 */
#define CN_IDEMPOTENCY_KEY_MAX 256 /* bytes */

/* Before the digits of an id that a client gave as an integer. No text id may hold it, so 42 and
 * "42" are two sequences. */
#define CN_SEQUENCE_NUMBER '\x01'

/* For people: an integer is its digits. */
static inline struct cn_str
cn_sequence_id_shown(struct cn_str id)
{
    return id.len > 1 && id.ptr[0] == CN_SEQUENCE_NUMBER ? (struct cn_str){id.ptr + 1, id.len - 1}
                                                         : id;
}

struct cn_header {
    struct cn_str name, value;
};

/* One parameter of a request. A plain body is one part named "body". */
struct cn_part {
    struct cn_str name, content_type, data; /* content_type may be empty */
};

enum cn_row_flags {
    CN_ROW_STATEFUL = 1u << 0, /* belongs to a sequence; sequence_id is set */
    CN_ROW_START = 1u << 1,    /* opens a new generation, whatever the store holds */
    CN_ROW_END = 1u << 2,      /* the sequence ends with this step */
    CN_ROW_RELOAD =
        1u << 3, /* another worker may have run the last step: the cached state is stale */
    CN_ROW_REDELIVERED = 1u << 4, /* was in flight when a worker died: may be committed already */
    CN_ROW_EXPLAIN = 1u << 5,
    CN_ROW_GENERATED_ID = 1u << 6, /* the server made the sequence id (sent with CN_ROW_START) */
    CN_ROW_MUST_EXIST =
        1u << 7,               /* sequence.strict: an id that the store doesn't know is an error */
    CN_ROW_DESCRIBE = 1u << 8, /* no request: the handler tells of itself; belongs to no sequence */
    CN_ROW_JOINED = 1u << 9,   /* the server formed this batch, and the next row is of it too */
    CN_ROW_PAD = 1u << 10,     /* no request: it fills a place in a formed batch; nobody waits for
                                * an answer */
    CN_ROW_NUMBERED = 1u << 11, /* `step` is set */

    /* Swapping a model under live sequences. */
    CN_ROW_ASK = 1u << 16, /* run it only if the sequence lives here; else CN_ANSWER_ELSEWHERE */
    CN_ROW_ANY_VERSION = 1u << 17,  /* sent without version, and lives in no other one: what moved
                                    * away or was reset here may begin again */
    CN_ROW_MOVE = 1u << 18,         /* `move` is set */
    CN_ROW_TAKE_PENDING = 1u << 19, /* an import that no step has met is the only copy: it lives */
    CN_ROW_PASS_PENDING = 1u << 20, /* it is a leftover: as if it weren't there */
};

/* What a row is for that swaps a sequence between two versions of its model, if not for a step. */
enum cn_move_op {
    CN_MOVE_LOOK = 1,   /* does it live here? CN_ANSWER_HERE, with its last step, or _ELSEWHERE */
    CN_MOVE_EXPORT = 2, /* the same, and its record as the answer's body */
    CN_MOVE_BURY = 3,   /* close it, if it is at that generation and step (0 and 0: at any);
                         * CN_ANSWER_ENDED and _HERE, or _ELSEWHERE: it has gone on */
    CN_MOVE_IMPORT =
        4,            /* migrate and keep the record of another version; it counts as absent until a
                         * plain row comes: only then is it known that the other copy is gone */
    CN_MOVE_TOLD = 5, /* a step: the answer says that its sequence was moved or reset */
};

struct cn_move {
    uint8_t op;                /* enum cn_move_op */
    uint8_t reason;            /* BURY, TOLD: enum cn_close_reason */
    uint64_t generation, step; /* BURY */
    struct cn_str version;     /* the other one; IMPORT and TOLD: it came from there */
    struct cn_str runtime;     /* IMPORT: of the other version; states don't cross runtimes */
    struct cn_str record;      /* IMPORT */
};

struct cn_row {
    uint64_t job_id;      /* unique over restarts of the server */
    uint32_t flags;       /* CN_ROW_... */
    uint32_t deadline_ms; /* time left when sent, ms; 0: none */
    uint64_t generation;  /* of the sequence as the server knows it; 0: ask the store */
    struct cn_str sequence_id, request_id;
    struct cn_str idempotency_key; /* a step with that of the last step is its retry; or empty */
    uint64_t step; /* with CN_ROW_NUMBERED, from 1 on: which one of its generation it is to be */
    uint32_t n_headers, n_parts;
    struct cn_header *headers;
    struct cn_part *parts;
    const struct cn_move *move; /* with CN_ROW_MOVE; else ignored */
};

/* The part of that name, or NULL; of several the first. */
static inline const struct cn_part *
cn_row_part(const struct cn_row *row, struct cn_str name)
{
    for (uint32_t i = 0; i < row->n_parts; i++)
        if (cn_str_eq(row->parts[i].name, name))
            return &row->parts[i];
    return NULL;
}

/* Why a row that streams is to come to its end; handlers hear the word. */
enum cn_stop_reason {
    CN_STOP_NONE = 0,
    CN_STOP_GONE = 1,      /* "gone": its client */
    CN_STOP_DEADLINE = 2,  /* "deadline": it has streamed for stream.timeoutMSec */
    CN_STOP_ENDED = 3,     /* "ended": its sequence ends, is deleted or starts anew */
    CN_STOP_CANCELLED = 4, /* "cancelled": by another step of its sequence */
};

enum cn_answer_flags {
    CN_ANSWER_FINAL = 1u << 0,         /* the last piece for this job */
    CN_ANSWER_REPLAYED = 1u << 1,      /* from the store: the step had been committed before */
    CN_ANSWER_OPENED = 1u << 2,        /* this step opened a new generation */
    CN_ANSWER_ENDED = 1u << 3,         /* the sequence ended with this step; its state is gone */
    CN_ANSWER_CLOSED_BEFORE = 1u << 4, /* error or replayed: the store holds a tombstone */
    CN_ANSWER_LIVE = 1u << 5,      /* of a handler that yielded: it can't be made again. Of such a
                                        * row all pieces have it, the first one at its first yield,
                                        * even if that has nothing for the client */
    CN_ANSWER_COMMITTED = 1u << 6, /* with LIVE: the step stands already (continuousBatching) */
    /* with OPENED: it took the place of one that this clock had closed (sequence.onExpired) */
    CN_ANSWER_RESTARTED_IDLE = 1u << 7,
    CN_ANSWER_RESTARTED_LIFETIME = 1u << 8,
    CN_ANSWER_ELSEWHERE = 1u << 16, /* to CN_ROW_ASK and CN_ROW_MOVE: it does not live here */
    CN_ANSWER_HERE = 1u << 17,      /* it does, and nothing was done to it; or it was imported */
    /* With ELSEWHERE: what there is of it, with when it was opened and its last step. */
    CN_ANSWER_PENDING = 1u << 18, /* an import that no plain row has met yet */
    CN_ANSWER_MOVED = 1u << 19,   /* it has moved from here; CLOSED_BEFORE: another tombstone */
};

struct cn_answer {
    uint64_t job_id;
    uint32_t flags;      /* CN_ANSWER_... */
    int32_t error_code;  /* CN_E_..., then body is its message; 0: the handler's own answer */
    uint16_t status;     /* HTTP status the handler chose; 0: 200 */
    uint64_t generation; /* of the sequence after the step; 0 for stateless rows */
    uint64_t step;       /* which one of its generation it was; 0: none was made, or stateless */
    uint64_t
        opened_wall_ms; /* when this generation was opened; for the total clock after a restart */
    struct cn_str content_type; /* may be empty */
    struct cn_str body;
    uint32_t n_headers;
    struct cn_header *headers;
};

/* "idle" or "lifetime": the clock that had closed the sequence in whose place this answer's step
 * opened a new one. NULL: there was none. */
static inline const char *
cn_answer_restarted(const struct cn_answer *answer)
{
    if (answer->error_code)
        return NULL;
    return answer->flags & CN_ANSWER_RESTARTED_IDLE       ? "idle"
           : answer->flags & CN_ANSWER_RESTARTED_LIFETIME ? "lifetime"
                                                          : NULL;
}

#endif
