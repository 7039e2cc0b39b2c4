/* kserve/infer_answer.h - what the v2 protocol answers: inference responses, as JSON with or
 * without binary tensors. */
#ifndef CN_KSERVE_INFER_ANSWER_H
#define CN_KSERVE_INFER_ANSWER_H

#include "core/memory/buf.h"
#include "kserve/request.h"

struct cn_v2_answer {
    const char *model, *version; /* the version that was used */
    uint32_t n_tensors;
    const struct cn_tensor *tensors;
    bool streamed, final; /* it is one of any number; and the last one of them */
};

/* Is it what the model declares, and is everything there that the request asks for? Before outputs
 * are classified. CN_E_HANDLER_FAILED otherwise. */
int cn_v2_answer_check(const struct cn_v2_answer *answer, const struct cn_v2_request *request,
                       const struct cn_model_io *io, struct cn_error *err);
/* Puts the outputs that the request lists into the request's order; where it lists none, all of
 * them into the order that the model declares. A handler's own order may be another one each time:
 * a Lua table has none. */
void cn_v2_answer_order(struct cn_tensor *tensors, uint32_t n, const struct cn_v2_request *request,
                        const struct cn_model_io *io);
/* How the request wants that output: what it says, or `otherwise`, which is set, where it lists
 * none; NULL: not at all. */
const struct cn_v2_output *cn_v2_wanted(const struct cn_v2_request *request, struct cn_str name,
                                        struct cn_v2_output *otherwise);

/* Appends the JSON and behind it the binary tensors. *json_len: bytes of the JSON when a non-empty
 * binary tensor follows it, else 0: then the body is plain JSON. Only the outputs that the request
 * asks for, in the order of the answer. CN_E_BAD_REQUEST: a type that JSON can't carry. */
int cn_v2_write(const struct cn_v2_answer *answer, const struct cn_v2_request *request,
                struct cn_buf *out, size_t *json_len, struct cn_error *err);

/* All datatypes but FP16 and BF16 have values in JSON. */
bool cn_v2_has_json(enum cn_datatype type);
#define CN_V2_NO_JSON                                                                              \
    "sending %s data via JSON is not supported. Please use the binary data format for output"
/* CN_E_BAD_REQUEST. */
int cn_v2_refuse_json(enum cn_datatype type, struct cn_error *err);

/* The elements of a tensor, with commas between. CN_E_BAD_REQUEST: a type that JSON can't carry. */
int cn_v2_write_values(const struct cn_tensor *tensor, struct cn_buf *out, struct cn_error *err);

/* {"error":"..."} */
void cn_v2_write_error(const char *message, struct cn_buf *out);
/* "..." with JSON's escapes; bytes that are no UTF-8 go out as they are. */
void cn_v2_write_text(struct cn_str text, struct cn_buf *out);

/* An element of a type of fixed size, at `at`, any alignment; not FP16 and BF16. */
void cn_v2_write_value(enum cn_datatype type, const char *at, struct cn_buf *out);

/* What a configuration says besides inputs, outputs and how batches are formed (io->batching), or
 * in place of that. */
struct cn_v2_settings {
    uint32_t workers, rows; /* rows: that one handler call gets at most */
    bool sequences;
    uint64_t idle_ms; /* 0: sequences are not closed for being idle */
    uint64_t delay_us;
};
/* GET .../config: the model's configuration in the protocol's names. */
void cn_v2_write_config(const char *model, const struct cn_model_io *io,
                        const struct cn_v2_settings *settings, struct cn_buf *out);

/* GET /v2/models/NAME: what the model takes and gives. `versions`: n of them. */
void cn_v2_write_metadata(const char *model, const char *const *versions, uint32_t n,
                          const char *platform, const struct cn_model_io *io, struct cn_buf *out);

#endif
