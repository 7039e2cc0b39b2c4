/* kserve/infer_answer.h - the v2 protocol's responses to inference requests, as JSON with or
 * without binary tensors. Any thread. */
#ifndef CN_KSERVE_INFER_ANSWER_H
#define CN_KSERVE_INFER_ANSWER_H

#include "core/memory/buf.h"
#include "kserve/request.h"

struct cn_v2_answer {
    const char *model, *version; /* names of the model and of the version that answered */
    uint32_t n_tensors;
    const struct cn_tensor *tensors;
    bool streamed, final; /* streamed: one of any number of responses; final: the last one */
};

/* Checks a handler's tensors: the model must declare each of them, and everything that the request
 * asks for must be there. Call it before outputs are classified. Returns CN_E_HANDLER_FAILED. */
int cn_v2_answer_check(const struct cn_v2_answer *answer, const struct cn_v2_request *request,
                       const struct cn_model_io *io, struct cn_error *err);
/* Orders the outputs as the request lists them, or, if it lists none, as the model declares them. A
 * handler's own order may differ each time, since a Lua table has none. */
void cn_v2_answer_order(struct cn_tensor *tensors, uint32_t n, const struct cn_v2_request *request,
                        const struct cn_model_io *io);
/* Returns how the request wants that output, or NULL if it does not want it. If the request lists
 * no outputs, `otherwise` is filled and returned. */
const struct cn_v2_output *cn_v2_wanted(const struct cn_v2_request *request, struct cn_str name,
                                        struct cn_v2_output *otherwise);

/* A last tensor of at least this many bytes need not be copied into the body. */
#define CN_V2_BORROWED_BYTES 65536

/* Appends the JSON and after it the binary tensors. *json_len becomes the length of the JSON if a
 * binary tensor that is not empty follows, else 0: the body is then plain JSON. Writes only the
 * outputs that the request asks for, in the order of the answer. If `last` is not NULL and the last
 * binary tensor is large, *last becomes its bytes, which the caller sends behind `out`; otherwise
 * it becomes empty. Returns CN_E_BAD_REQUEST for a type that JSON cannot express. */
int cn_v2_write(const struct cn_v2_answer *answer, const struct cn_v2_request *request,
                struct cn_buf *out, size_t *json_len, struct cn_str *last, struct cn_error *err);

/* Can JSON express the type? It can express all but FP16 and BF16. */
bool cn_v2_has_json(enum cn_datatype type);
#define CN_V2_NO_JSON                                                                              \
    "sending %s data via JSON is not supported. Please use the binary data format for output"
/* CN_E_BAD_REQUEST. */
int cn_v2_refuse_json(enum cn_datatype type, struct cn_error *err);

/* Writes the elements of a tensor, separated by commas. Returns CN_E_BAD_REQUEST for a type that
 * JSON cannot express. */
int cn_v2_write_values(const struct cn_tensor *tensor, struct cn_buf *out, struct cn_error *err);

/* Writes {"error":"..."}. */
void cn_v2_write_error(const char *message, struct cn_buf *out);
/* Writes a text in quotes, with JSON's escapes. Bytes that are not UTF-8 are written unchanged. */
void cn_v2_write_text(struct cn_str text, struct cn_buf *out);

/* Writes one element of a type of fixed size, but not FP16 and BF16. `at` may have any
 * alignment. */
void cn_v2_write_value(enum cn_datatype type, const char *at, struct cn_buf *out);

/* What a configuration has besides inputs, outputs and the batching strategy (io->batching), or in
 * place of the latter. */
struct cn_v2_settings {
    uint32_t workers, rows; /* rows: most rows of one handler call */
    bool sequences;
    uint64_t idle_ms; /* 0: idle sequences are not closed */
    uint64_t delay_us;
};
/* Writes the model's configuration with the protocol's names (GET .../config). */
void cn_v2_write_config(const char *model, const struct cn_model_io *io,
                        const struct cn_v2_settings *settings, struct cn_buf *out);

/* Writes a model's metadata (GET /v2/models/NAME): what it takes and returns. `versions` has n
 * elements. */
void cn_v2_write_metadata(const char *model, const char *const *versions, uint32_t n,
                          const char *platform, const struct cn_model_io *io, struct cn_buf *out);

#endif
