/* config/model/batching.h - how requests are put into batches: the blocks sequence_batching and
 * dynamic_batching of a typed model's YAML, in the words of Triton's configuration.
 *
 *   sequence_batching:
 *     max_sequence_idle_microseconds: 5000000
 *     control_input:
 *       - {name: START, control: [{kind: CONTROL_SEQUENCE_START, int32_false_true: [0, 1]}]}
 *       - {name: CORRID, control: [{kind: CONTROL_SEQUENCE_CORRID, data_type: TYPE_UINT64}]}
 *     oldest: {max_candidate_sequences: 4, preferred_batch_size: [2, 4]}
 *
 * Keys may also be written in camelCase. Read only once parsed; any thread. */
#ifndef CN_CONFIG_MODEL_BATCHING_H
#define CN_CONFIG_MODEL_BATCHING_H

#include <stdbool.h>
#include <stdint.h>

#include "config/model/model_config.h"
#include "config/model/model_io.h"
#include "config/yaml/yaml.h"
#include "core/errors/error.h"

#define CN_PRIORITY_LEVELS_MAX 64 /* each level has a queue of its own */
#define CN_PREFERRED_MAX 64

enum cn_batching_kind {
    CN_BATCHING_DIRECT, /* a sequence keeps one slot, its row of each batch, for its life */
    /* a worker has a number of sequences at once; the one that waits longest goes first */
    CN_BATCHING_OLDEST,
    CN_BATCHING_DYNAMIC /* stateless: requests by priority, then in the order of arrival */
};

enum cn_control_kind {
    CN_CONTROL_SEQUENCE_START,
    CN_CONTROL_SEQUENCE_END,
    CN_CONTROL_SEQUENCE_READY,
    CN_CONTROL_SEQUENCE_CORRID
};

/* A control tensor: one element that tells the handler something about its row. */
struct cn_control {
    struct cn_str name;
    enum cn_control_kind kind;
    /* INT32, FP32 or BOOL; of CORRID: UINT64, INT64, UINT32, INT32 or BYTES */
    enum cn_datatype type;
    unsigned char bytes[2][4]; /* the bytes for false and for true; not used for CORRID */
};

/* How long a request may wait, and how many may. */
struct cn_queue_policy {
    /* a request that has waited too long goes behind all others, instead of being refused */
    bool delay;
    bool allow_override; /* a request's own timeout counts if it is shorter */
    uint64_t timeout_us; /* 0: no timeout */
    uint32_t max_queued; /* 0: jobQueueSize is the limit */
};

struct cn_batching {
    enum cn_batching_kind kind;
    uint32_t n_controls;
    struct cn_control *controls;
    /* OLDEST: the sequences that a worker has at once; 0: its batch size */
    uint32_t max_candidates;
    float
        /* DIRECT: the share of slots that must have work before a batch goes, until delay_us have
         * passed */
        min_utilization;
    uint64_t delay_us; /* how long an idle worker waits for a better batch */
    uint32_t n_preferred;
    uint32_t preferred[CN_PREFERRED_MAX]; /* in ascending order */
    bool preserve_ordering;
    uint64_t idle_us; /* how long a sequence may be idle; never 0 after cn_batching_apply */
    /* true: requests that wait when their sequence expires are refused; false: they still run */
    bool reject_expired;
    bool describe_expired; /* such a sequence is also logged */
    /* 0: all requests are equal; otherwise levels go from 1, the first, to this */
    uint32_t priority_levels;
    uint32_t default_level;
    /* the index is the level; without levels [0] is used */
    struct cn_queue_policy policies[CN_PRIORITY_LEVELS_MAX + 1];
};

/* True for a block that this file reads, and model_config.c does not. */
bool cn_batching_owns(const struct cn_yaml *value);
/* Sets io->batching from the document, or leaves it NULL. `model` is used in messages. CN_E_CONFIG
 * with name:line:column, also if there is a block and `io` is NULL, since an untyped model cannot
 * have one. */
int cn_batching_parse(const struct cn_yaml_doc *doc, const char *model, struct cn_model_io *io,
                      struct cn_error *err);
/* Changes settings that follow from a block and that the document does not set itself. */
void cn_batching_apply(const struct cn_yaml_doc *doc, const struct cn_model_io *io,
                       struct cn_model_config *config);

/* Returns the preferred batch size to show for a model that sets none: the most rows that a handler
 * call gets. Returns 0 for a model without a batch dimension, whose batches have no sizes. */
uint32_t cn_batching_shown_preferred(uint32_t rows, uint32_t max_batch_size);

/* A control's word: "CONTROL_SEQUENCE_START" ... */
const char *cn_control_word(enum cn_control_kind kind);
/* The model's control of this kind, or NULL. `batching` may be NULL. */
const struct cn_control *cn_batching_control(const struct cn_batching *batching,
                                             enum cn_control_kind kind);

#endif
