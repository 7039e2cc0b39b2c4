/* config/model/batching.h - who goes together into a batch, and when: the blocks sequence_batching
 * and dynamic_batching of a typed model's YAML, in the words of Triton's configuration.
 *
 *   sequence_batching:
 *     max_sequence_idle_microseconds: 5000000
 *     control_input:
 *       - {name: START, control: [{kind: CONTROL_SEQUENCE_START, int32_false_true: [0, 1]}]}
 *       - {name: CORRID, control: [{kind: CONTROL_SEQUENCE_CORRID, data_type: TYPE_UINT64}]}
 *         oldest: {max_candidate_sequences: 4, preferred_batch_size: [2, 4]}
 *
 * Keys may be written in camelCase too. Read only once parsed; any thread.
 */
#ifndef CN_CONFIG_MODEL_BATCHING_H
#define CN_CONFIG_MODEL_BATCHING_H

#include <stdbool.h>
#include <stdint.h>

#include "config/model/model_config.h"
#include "config/model/model_io.h"
#include "config/yaml/yaml.h"
#include "core/errors/error.h"

#define CN_PRIORITY_LEVELS_MAX 64 /* each has a queue of its own */
#define CN_PREFERRED_MAX 64

enum cn_batching_kind {
    CN_BATCHING_DIRECT, /* a sequence has a slot, which is its row of each batch, for its life */
    CN_BATCHING_OLDEST, /* a worker has so many sequences; who waits longest goes first */
    CN_BATCHING_DYNAMIC /* stateless: requests by priority, then as they came */
};

enum cn_control_kind {
    CN_CONTROL_SEQUENCE_START,
    CN_CONTROL_SEQUENCE_END,
    CN_CONTROL_SEQUENCE_READY,
    CN_CONTROL_SEQUENCE_CORRID
};

/* A tensor of one element that says something about the row. */
struct cn_control {
    struct cn_str name;
    enum cn_control_kind kind;
    enum cn_datatype type; /* INT32, FP32 or BOOL; CORRID: UINT64, INT64, UINT32, INT32 or BYTES */
    unsigned char bytes[2][4]; /* false and true, as they travel; not of CORRID */
};

/* How long a request may wait, and how many. */
struct cn_queue_policy {
    bool delay;          /* who has waited too long goes behind all others, and is not refused */
    bool allow_override; /* a request's own timeout counts where it is shorter */
    uint64_t timeout_us; /* 0: none */
    uint32_t max_queued; /* 0: what jobQueueSize says */
};

struct cn_batching {
    enum cn_batching_kind kind;
    uint32_t n_controls;
    struct cn_control *controls;
    uint32_t max_candidates; /* OLDEST: sequences that a worker has at once; 0: its batch size */
    float
        min_utilization; /* DIRECT: share of slots that must have work, until delay_us have passed */
    uint64_t delay_us;   /* how long an idle worker waits for a better batch */
    uint32_t n_preferred;
    uint32_t preferred[CN_PREFERRED_MAX]; /* ascending */
    bool preserve_ordering;
    uint64_t idle_us;         /* of sequences; never 0 once applied */
    bool reject_expired;      /* what waits when its sequence expires is refused, else still done */
    bool describe_expired;    /* and the sequence is logged */
    uint32_t priority_levels; /* 0: all are equal; else 1, the first to go, to this */
    uint32_t default_level;
    struct cn_queue_policy policies[CN_PRIORITY_LEVELS_MAX + 1]; /* by level; [0]: without levels */
};

/* Is it a block that is read here, and not by model_config.c? */
bool cn_batching_owns(const struct cn_yaml *value);
/* Sets io->batching from the document, or leaves it NULL; `model` stands in messages. CN_E_CONFIG
 * with name:line:column; also when there is a block and `io` is NULL, since an untyped model has
 * none. */
int cn_batching_parse(const struct cn_yaml_doc *doc, const char *model, struct cn_model_io *io,
                      struct cn_error *err);
/* What a block means for settings that the document doesn't make itself. */
void cn_batching_apply(const struct cn_yaml_doc *doc, const struct cn_model_io *io,
                       struct cn_model_config *config);

/* The preferred size that is shown where none is set: what a handler gets at most. 0: none, since
 * without batch dimension there are no sizes. */
uint32_t cn_batching_shown_preferred(uint32_t rows, uint32_t max_batch_size);

/* "CONTROL_SEQUENCE_START" ... */
const char *cn_control_word(enum cn_control_kind kind);
/* NULL: the model has no such control. */
const struct cn_control *cn_batching_control(const struct cn_batching *batching,
                                             enum cn_control_kind kind);

#endif
