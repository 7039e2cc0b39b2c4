/* kserve/request.h - an inference request of the v2 protocol, whatever transport it came by.
 *
 * Filled from JSON (json_read.c) or from protobuf, then held against what the model declares
 * (check.c). Bytes are borrowed from the request's body or lie in its arena. Messages and codes are
 * those that v2 clients match on. Any thread, no state.
 */
#ifndef CN_KSERVE_REQUEST_H
#define CN_KSERVE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "config/model/model_io.h"
#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "proto/tensor.h"

enum cn_v2_kind { CN_V2_BOOL, CN_V2_INT, CN_V2_DOUBLE, CN_V2_STRING };

/* A parameter that is the handler's business. */
struct cn_v2_param {
    struct cn_str name;
    enum cn_v2_kind kind;
    bool boolean;
    int64_t integer;
    double number;
    struct cn_str text;
};

/* Integer 42 and string "42" are two sequences. */
enum cn_v2_id_kind { CN_V2_NO_ID, CN_V2_ID_NUMBER, CN_V2_ID_TEXT };

/* A tensor's place in shared memory (shared_memory.h). */
struct cn_v2_window {
    struct cn_str region; /* empty: it does not lie there */
    uint64_t offset, bytes;
    struct cn_shm_region *held; /* shared_memory.c's */
};

struct cn_v2_output {
    struct cn_str name;
    bool binary;
    struct cn_v2_window window;
    uint64_t classes; /* the so many largest of its values (classify.h); 0: the tensor itself */
};

struct cn_v2_request {
    struct cn_str id; /* echoed; may be empty */

    enum cn_v2_id_kind sequence_kind;
    uint64_t sequence_number;
    struct cn_str sequence_text;
    bool start, end;
    bool has_step;
    uint64_t step;                 /* the number that the step is to have, as it was sent */
    uint64_t priority, timeout_us; /* 0: none */
    bool binary_by_default;        /* outputs when none are listed */
    bool empty_final; /* of a decoupled model, an end without outputs is a response, too */

    uint32_t n_params;
    struct cn_v2_param *params;
    uint32_t n_inputs;
    struct cn_tensor *inputs;
    struct cn_v2_window *windows; /* of each input; NULL: none lies in shared memory */
    bool lists_outputs;
    uint32_t n_outputs;
    struct cn_v2_output *outputs;

    uint32_t batch; /* by check: rows of the batch dimension; 1 where there is none */
};

/* Sizes that a server allows. */
struct cn_v2_limits {
    size_t json_bytes; /* of the JSON part, and of each tensor decoded from it */
};

/* Takes apart `body`: JSON, the first `json_len` bytes of it, then the binary inputs. */
int cn_v2_read(struct cn_str body, size_t json_len, const char *model,
               const struct cn_v2_limits *limits, struct cn_arena *arena, struct cn_v2_request *out,
               struct cn_error *err);
/* The Inference-Header-Content-Length header against the body's length. */
int cn_v2_read_json_length(struct cn_str header, size_t body_len, size_t *out,
                           struct cn_error *err);

/* Are these the tensors that the model takes? Sets `batch`. */
int cn_v2_check(struct cn_v2_request *request, const struct cn_model_io *io, const char *model,
                struct cn_arena *arena, struct cn_error *err);

/* Before the model runs: can the outputs go out as the request wants them? JSON has no FP16 and no
 * BF16, and neither they nor BYTES can be classified. Where the request lists no outputs, a model
 * may leave out one that it declares; `keeps_state`: then what it declares counts, since the step
 * would be done and its answer lost. CN_E_BAD_REQUEST: they can't. */
int cn_v2_check_writable(const struct cn_v2_request *request, const struct cn_model_io *io,
                         bool keeps_state, struct cn_error *err);

/* Can the sequence's id, a text or an integer, be the model's CORRID tensor? No id counts as
 * integer 0. `io`: NULL: the model is not typed. */
int cn_v2_check_corrid(const struct cn_v2_request *request, const struct cn_model_io *io,
                       const char *model, bool is_text, struct cn_error *err);

/* The sequence's id as the scheduler and the store know it, or empty: a number begins with
 * CN_SEQUENCE_NUMBER. CN_E_BAD_REQUEST: longer than an id may be, or with
 * control characters. */
int cn_v2_sequence_id(const struct cn_v2_request *request, struct cn_arena *arena,
                      struct cn_str *out, struct cn_error *err);

#endif
