/* v2/answer.h - an inference response of the v2 protocol, as JSON with or without binary tensors. */
#ifndef CN_V2_ANSWER_H
#define CN_V2_ANSWER_H

#include "core/buf.h"
#include "v2/request.h"

struct cn_v2_answer {
    const char *model, *version; /* the version that was used */
    uint32_t n_tensors;
    const struct cn_tensor *tensors;
};

/* Appends the JSON and behind it the binary tensors. *json_len: bytes of the JSON when a non-empty
 * binary tensor follows it, else 0: then the body is plain JSON. Only the outputs that the request asks
 * for, in the order of the answer. CN_E_BAD_REQUEST: a type that JSON can't carry; CN_E_HANDLER_FAILED:
 * a requested output is missing, or not of the declared type. */
int cn_v2_write(const struct cn_v2_answer *answer, const struct cn_v2_request *request,
                const struct cn_model_io *io, struct cn_buf *out, size_t *json_len,
                struct cn_error *err);

/* {"error":"..."} */
void cn_v2_write_error(const char *message, struct cn_buf *out);
/* "..." with JSON's escapes; bytes that are no UTF-8 go out as they are. */
void cn_v2_write_text(struct cn_str text, struct cn_buf *out);

/* An element of a type of fixed size, at `at`, any alignment; not FP16 and BF16. */
void cn_v2_write_value(enum cn_datatype type, const char *at, struct cn_buf *out);

/* What a configuration says besides inputs and outputs. */
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
