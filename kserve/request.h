/* kserve/request.h - an inference request of the v2 protocol, independent of its transport.
 *
 * A request is filled from JSON (json_read.c) or from protobuf, and then checked against what the
 * model declares (check.c). Its bytes either point into the request's body or lie in its arena.
 * Error messages and codes are those that v2 clients match on. Any thread, no state.
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

/* A parameter that the protocol does not define; it is passed to the handler. */
struct cn_v2_param {
    struct cn_str name;
    enum cn_v2_kind kind;
    bool boolean;
    int64_t integer;
    double number;
    struct cn_str text;
};

/* The kind of a sequence id. Integer 42 and string "42" are two different sequences. */
enum cn_v2_id_kind { CN_V2_NO_ID, CN_V2_ID_NUMBER, CN_V2_ID_TEXT };

/* A tensor's place in a region of shared memory (shared_memory.h). */
struct cn_v2_window {
    struct cn_str region; /* name of the region; empty: the tensor is not in shared memory */
    uint64_t offset, bytes;
    struct cn_shm_region *held; /* reference that shared_memory.c holds */
};

struct cn_v2_output {
    struct cn_str name;
    bool binary;
    struct cn_v2_window window;
    uint64_t classes; /* how many of its largest values to send (classify.h); 0: all of it */
};

struct cn_v2_request {
    struct cn_str id; /* the client's id, which the response repeats; may be empty */

    enum cn_v2_id_kind sequence_kind;
    uint64_t sequence_number;
    struct cn_str sequence_text;
    bool start, end;
    bool has_step;
    uint64_t step;                 /* the step number that the client expects, as it was sent */
    uint64_t priority, timeout_us; /* 0: not given */
    bool binary_by_default;        /* send outputs as binary data if the request lists no outputs */
    bool empty_final;              /* for a decoupled model, also send an end without outputs */

    uint32_t n_params;
    struct cn_v2_param *params;
    uint32_t n_inputs;
    struct cn_tensor *inputs;
    struct cn_v2_window *windows; /* one for each input; NULL: no input is in shared memory */
    bool lists_outputs;
    uint32_t n_outputs;
    struct cn_v2_output *outputs;

    uint32_t batch; /* set by cn_v2_check: size of the batch dimension; 1 if there is none */
};

/* Sizes that the server allows. */
struct cn_v2_limits {
    size_t json_bytes; /* most bytes of the JSON part, and of each tensor decoded from it */
};

/* Reads a request from `body`: the JSON is its first `json_len` bytes, the binary inputs follow.
 * `out` may point into `body`, and its other texts lie in `arena`. */
int cn_v2_read(struct cn_str body, size_t json_len, const char *model,
               const struct cn_v2_limits *limits, struct cn_arena *arena, struct cn_v2_request *out,
               struct cn_error *err);
/* Reads the Inference-Header-Content-Length header, and checks it against the length of the
 * body. */
int cn_v2_read_json_length(struct cn_str header, size_t body_len, size_t *out,
                           struct cn_error *err);

/* Checks that the request has the tensors that the model takes. Sets `batch`. */
int cn_v2_check(struct cn_v2_request *request, const struct cn_model_io *io, const char *model,
                struct cn_arena *arena, struct cn_error *err);

/* Checks, before the model runs, that its outputs can be sent in the form that the request wants.
 * JSON cannot express FP16 and BF16, and neither those nor BYTES can be classified. If the request
 * lists no outputs, a model may leave out an output that it declares, so these are not checked; but
 * with `keeps_state` they are, because otherwise the step would be done and its answer lost.
 * Returns CN_E_BAD_REQUEST. */
int cn_v2_check_writable(const struct cn_v2_request *request, const struct cn_model_io *io,
                         bool keeps_state, struct cn_error *err);

/* Checks that the sequence's id, a text or an integer, can be the model's CORRID tensor. A request
 * without id counts as integer 0. `io` is NULL for a model that is not typed. */
int cn_v2_check_corrid(const struct cn_v2_request *request, const struct cn_model_io *io,
                       const char *model, bool is_text, struct cn_error *err);

/* Stores the sequence's id as the scheduler and the store know it, or an empty text: a number
 * begins with CN_SEQUENCE_NUMBER, so that 42 and "42" differ. Returns CN_E_BAD_REQUEST when the id
 * is too long or has control characters. */
int cn_v2_sequence_id(const struct cn_v2_request *request, struct cn_arena *arena,
                      struct cn_str *out, struct cn_error *err);

#endif
