/* frontend/intake/headers.c - see headers.h. */
#include "frontend/intake/headers.h"

#include "frontend/intake/sequence_names.h"

const struct cn_header *
cn_header_find(const struct cn_header *headers, uint32_t n, struct cn_str name)
{
    uint32_t i;

    for (i = 0; i < n; i++) {
        if (cn_str_eq_header(headers[i].name, name))
            return &headers[i];
    }
    return NULL;
}

bool
cn_header_is_ours(struct cn_str name)
{
    static const struct cn_str ours[] = {
        /* Hop-by-hop headers (RFC 9110, 7.6.1), and headers that delimit the body. */
        CN_STR("connection"), CN_STR("keep-alive"), CN_STR("proxy-connection"), CN_STR("te"),
        CN_STR("trailer"), CN_STR("transfer-encoding"), CN_STR("upgrade"), CN_STR("content-length"),
        /* Headers in which the server itself describes the request. */
        CN_STR("x-request-id"), CN_STR("continuo-error"), CN_STR("continuo-replayed"),
        CN_STR("continuo-sequence-restarted"), CN_STR("continuo-sequence-step"),
        CN_STR("continuo-expected-step"), CN_STR("inference-session-id"),
        CN_STR("x-amzn-sagemaker-new-session-id"), CN_STR("x-amzn-sagemaker-closed-session-id")};
    size_t i;

    for (i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (cn_str_eq_header(name, ours[i]))
            return true;
    }
    return cn_sequence_name_find(name) == CN_NAME_ID;
}

bool
cn_header_is_printable(struct cn_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] < ' ' || text.ptr[i] > '~')
            return false;
    return true;
}
