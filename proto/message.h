/* proto/message.h - a request and an answer, independent of the protocol that carried them.
 *
 * HTTP, gRPC and the v2 protocol all become these structs, and the worker knows no others. A row is
 * one request of a batch. An answer is one piece of what a handler returned for a row; a streamed
 * answer has several pieces. All strings and arrays are borrowed, from a frame,
 * an arena or a request.
 */
#ifndef CN_PROTO_MESSAGE_H
#define CN_PROTO_MESSAGE_H

#include <stdint.h>

#include "core/text/str.h"

#define CN_SEQUENCE_ID_MAX 256     /* bytes; at least 1 */
#define CN_IDEMPOTENCY_KEY_MAX 256 /* bytes */

/* The first byte of an id that a client gave as an integer; its digits follow. A text id must not
 * contain this byte, so the integer 42 and the text "42" name two different sequences. */
#define CN_SEQUENCE_NUMBER '\x01'

/* Returns the id as people should read it: an integer id without its first byte. */
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
    CN_ROW_STATEFUL = 1u << 0,     /* belongs to a sequence; sequence_id is set */
    CN_ROW_START = 1u << 1,        /* opens a new generation, whatever the store holds */
    CN_ROW_END = 1u << 2,          /* the sequence ends with this step */
    CN_ROW_RELOAD = 1u << 3,       /* another worker may have run the last step, so the cached state
                                   * may be out of date */
    CN_ROW_REDELIVERED = 1u << 4,  /* was in flight when a worker died, so it may be committed */
    CN_ROW_EXPLAIN = 1u << 5,      /* came by the explanations endpoint */
    CN_ROW_GENERATED_ID = 1u << 6, /* the server made the sequence id (sent with CN_ROW_START) */
    CN_ROW_MUST_EXIST = 1u << 7,   /* sequence.strict: an id that is not in the store is an error */
    CN_ROW_DESCRIBE = 1u << 8, /* not a request: asks the handler to describe itself; it belongs to
                                * no sequence */
    CN_ROW_JOINED = 1u << 9,   /* the server built this batch, and the next row belongs to it too */
    CN_ROW_PAD = 1u << 10,     /* not a request: it fills a place in a batch that the server built;
                                * nobody waits for its answer */
    CN_ROW_NUMBERED = 1u << 11, /* `step` is set */
    CN_ROW_INSTANCE = 1u << 12, /* its body is an instance of a service envelope, in JSON */
    CN_ROW_NAMED = 1u << 13,    /* the client gave request_id, in a v2 request */
    CN_ROW_RECALL = 1u << 14,   /* not a step: asks for the stored answer of the step `step`, or,
                                 * with CN_RECALL_LAST, for the number of the last committed step.
                                 * Nothing runs. CN_ROW_NUMBERED is set, too */

    CN_ROW_KEEPS = 1u << 15, /* `keep` is set */

    /* Swapping a model under live sequences. */
    CN_ROW_ASK = 1u << 16, /* run it only if the sequence lives here; else CN_ANSWER_ELSEWHERE. With
                            * CN_ROW_ANY_VERSION and a shared store the worker then claims the id,
                            * and the answer has the generation of the claim */
    CN_ROW_ANY_VERSION = 1u << 17,  /* the client named no version. Without CN_ROW_ASK the sequence
                                     * lives in no other one: it may begin again where it was moved
                                     * or reset */
    CN_ROW_MOVE = 1u << 18,         /* `move` is set */
    CN_ROW_TAKE_PENDING = 1u << 19, /* a pending import is the only copy, so it becomes live */
    CN_ROW_PASS_PENDING = 1u << 20, /* a pending import is a leftover: ignore it */
};

/* The `step` of a CN_ROW_RECALL that only asks where its sequence is. Its answer has no error and
 * no body, and the number of the last committed step as `step`; 0 and CN_ANSWER_CLOSED_BEFORE:
 * there is no such sequence. */
#define CN_RECALL_LAST ((uint64_t)INT64_MAX)

/* The purpose of a row with CN_ROW_MOVE, by which a sequence moves from one version of its model to
 * another. The scheduler (scheduler/swap/) sends LOOK or EXPORT to the old version, IMPORT to the
 * new one, BURY to the old one, and then the step itself to the new one (TOLD). */
enum cn_move_op {
    CN_MOVE_LOOK = 1,   /* does the sequence live here? The answer has CN_ANSWER_HERE and the last
                         * step, or CN_ANSWER_ELSEWHERE */
    CN_MOVE_EXPORT = 2, /* like LOOK, and the answer's body is the record */
    CN_MOVE_BURY = 3,   /* close the sequence if it is at this generation and step (0 and 0: at
                         * any): CN_ANSWER_ENDED and _HERE; _ELSEWHERE: it has made more steps */
    CN_MOVE_IMPORT = 4, /* migrate the record of another version and store it. It stays pending,
                         * which counts as absent, until a plain row comes: only then does the
                         * worker know that the other copy is closed */
    CN_MOVE_TOLD = 5,   /* the step itself. With a reason its answer says that the sequence was
                         * moved or reset. With a generation it runs only on a live sequence or on
                         * the claim or import with this generation; else CN_ANSWER_ELSEWHERE */
};

struct cn_move {
    uint8_t op;                /* enum cn_move_op */
    uint8_t reason;            /* BURY: enum cn_close_reason; TOLD: the same, or 0 */
    uint64_t generation, step; /* BURY: where the sequence must be. IMPORT, TOLD: the generation
                                * of our claim or import; 0: the store is not shared */
    struct cn_str version; /* the other version; with IMPORT and TOLD the sequence came from it */
    struct cn_str runtime; /* IMPORT: the other version's; a state cannot change its runtime */
    struct cn_str record;  /* IMPORT: the encoded record */
};

struct cn_row {
    uint64_t job_id;      /* unique over restarts of the server */
    uint32_t flags;       /* CN_ROW_... */
    uint32_t deadline_ms; /* time left when sent, ms; 0: none */
    uint64_t generation;  /* the sequence's generation as the server knows it; 0: ask the store */
    struct cn_str sequence_id, request_id;
    struct cn_str idempotency_key; /* a step with the last step's key is its retry; may be empty */
    uint64_t step; /* with CN_ROW_NUMBERED: the step number that it must get, from 1 on */
    uint8_t keep;  /* with CN_ROW_KEEPS: the record keeps the answers of this many last steps; at
                    * least 2 */
    uint32_t n_headers, n_parts;
    struct cn_header *headers;
    struct cn_part *parts;
    const struct cn_move *move; /* with CN_ROW_MOVE; else ignored */
};

/* Returns the row's first part with this name, or NULL. */
static inline const struct cn_part *
cn_row_part(const struct cn_row *row, struct cn_str name)
{
    for (uint32_t i = 0; i < row->n_parts; i++)
        if (cn_str_eq(row->parts[i].name, name))
            return &row->parts[i];
    return NULL;
}

/* Why a streaming row must end. Handlers get the word in quotes. */
enum cn_stop_reason {
    CN_STOP_NONE = 0,
    CN_STOP_GONE = 1,      /* "gone": its client has disconnected */
    CN_STOP_DEADLINE = 2,  /* "deadline": it has streamed for stream.timeoutMSec */
    CN_STOP_ENDED = 3,     /* "ended": its sequence ends, is deleted or starts anew */
    CN_STOP_CANCELLED = 4, /* "cancelled": another step of its sequence stopped it */
};

enum cn_answer_flags {
    CN_ANSWER_FINAL = 1u << 0,         /* the last piece for this job */
    CN_ANSWER_REPLAYED = 1u << 1,      /* from the store: the step had been committed before */
    CN_ANSWER_OPENED = 1u << 2,        /* this step opened a new generation */
    CN_ANSWER_ENDED = 1u << 3,         /* the sequence ended with this step; its state is gone */
    CN_ANSWER_CLOSED_BEFORE = 1u << 4, /* error or replayed: the store holds a tombstone */
    CN_ANSWER_LIVE = 1u << 5,      /* the handler yielded, so the answer cannot be made again. All
                                    * pieces of such a row have this flag. The first one comes at
                                    * the first yield, even if it has nothing for the client */
    CN_ANSWER_COMMITTED = 1u << 6, /* with LIVE: the step is committed (continuousBatching) */
    /* with OPENED: the new sequence replaces one that had expired (sequence.onExpired) */
    CN_ANSWER_RESTARTED_IDLE = 1u << 7,
    CN_ANSWER_RESTARTED_LIFETIME = 1u << 8,
    CN_ANSWER_WORKER_LOST = 1u << 9, /* with CLOSED_BEFORE: this row closed it (worker_lost) */
    CN_ANSWER_ELSEWHERE = 1u << 16,  /* to CN_ROW_ASK and CN_ROW_MOVE: it does not live here */
    CN_ANSWER_HERE = 1u << 17,       /* it lives here and was not changed; or it was imported */
    /* With ELSEWHERE: what the store holds instead; `opened_wall_ms` and `step` are set too. */
    CN_ANSWER_PENDING = 1u << 18, /* an import that no plain row has confirmed */
    CN_ANSWER_MOVED = 1u << 19,   /* it was moved away from here; for a tombstone with another
                                   * reason CLOSED_BEFORE is set instead */
    /* with OPENED: the store had a sequence of this id that was open; it counted until now */
    CN_ANSWER_REPLACED = 1u << 20,
};

#define CN_STATE_BYTES_UNKNOWN UINT64_MAX

struct cn_answer {
    uint64_t job_id;
    uint32_t flags;      /* CN_ANSWER_... */
    int32_t error_code;  /* CN_E_..., then body is its message; 0: the handler's own answer */
    uint16_t status;     /* HTTP status the handler chose; 0: 200 */
    uint64_t generation; /* generation of the sequence after the step; 0 for stateless rows */
    uint64_t step; /* its number in the generation; 0: no step was made, or stateless. A piece of a
                    * stream has the number that its step will have, an error the expected one */
    uint64_t opened_wall_ms;    /* when this generation was opened. The server needs it for the
                                 * lifetime limit after a restart */
    uint64_t state_bytes;       /* what the step has stored as the state of its sequence;
                                 * CN_STATE_BYTES_UNKNOWN: it has stored nothing */
    struct cn_str content_type; /* may be empty */
    struct cn_str body;
    uint32_t n_headers;
    struct cn_header *headers;
};

/* Returns the number of the step that is committed with this answer; 0: there is none, or it is not
 * committed yet. A piece of a stream has the number that its step will have. */
static inline uint64_t
cn_answer_committed(const struct cn_answer *answer)
{
    const uint32_t committed = CN_ANSWER_FINAL | CN_ANSWER_COMMITTED | CN_ANSWER_REPLAYED;

    return answer->error_code == 0 && (answer->flags & committed) ? answer->step : 0;
}

/* Returns "idle" or "lifetime" when the answer's step opened a new sequence in place of an expired
 * one: the limit by which that one had expired. Returns NULL for all other answers. */
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
