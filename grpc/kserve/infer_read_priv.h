/* grpc/kserve/infer_read_priv.h - what the readers of a ModelInferRequest share. Any thread. */
#ifndef CN_GRPC_KSERVE_INFER_READ_PRIV_H
#define CN_GRPC_KSERVE_INFER_READ_PRIV_H

#include "core/text/utf8.h"
#include "grpc/kserve/infer_read.h"

enum member { NONE = 0, BOOL = 1, INT64 = 2, STRING = 3, DOUBLE = 4, UINT64 = 5 };

struct reader {
    struct cn_v2_request *out;
    const char *model;
    size_t max_tensor_bytes;
    struct cn_arena *arena;
    struct cn_error *err;
};

/* One entry of a map<string, InferParameter>. */
struct parameter {
    struct cn_str key, text;
    enum member member; /* which member of the oneof; the last one that was sent counts */
    uint64_t value;
    double number;
};

/* Where a tensor lies in shared memory, while its parameters are read. */
struct window {
    struct cn_v2_window place;
    bool is_named, has_size;
};

static inline int
cn_rpc_infer_invalid(struct cn_error *err)
{
    return cn_fail(err, CN_E_BAD_REQUEST, "the body is not a valid ModelInferRequest message");
}

static inline int
cn_rpc_infer_check_text(struct cn_str text, const char *what, struct cn_error *err)
{
    if (cn_utf8_is_valid(text))
        return 0;
    return cn_fail(err, CN_E_BAD_REQUEST, "%s is not UTF-8", what);
}

/* Reads an entry of a map<string, InferParameter>. CN_E_BAD_REQUEST. */
int cn_rpc_infer_entry(struct cn_str bytes, struct parameter *out, struct cn_error *err);
/* Reads a parameter that says where a tensor lies in shared memory; other parameters of a tensor
 * are skipped. A negative size or offset becomes a very large number, which is outside of each
 * region and is refused later. */
int cn_rpc_infer_window(const struct reader *reader, const struct parameter *from,
                        struct cn_str tensor, struct window *window);
/* Called after all parameters of a tensor, because their order is free. A size or an offset without
 * the name of a region means nothing. */
int cn_rpc_infer_window_check(const struct reader *reader, struct cn_str tensor,
                              struct window *window);

#endif
