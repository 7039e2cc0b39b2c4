/* grpc/error_status.c - errors as gRPC statuses. On the call's loop.
 *
 * errors.def has a gRPC status for each error. gRPC has only 16 of them, so a client that must know
 * more reads the details: a google.rpc.Status in the metadata grpc-status-details-bin, with an
 * ErrorInfo (the word of Continuo-Error as its reason) and a RetryInfo. Many client libraries
 * cannot read that easily, so the word and the seconds are also sent as plain metadata
 * (continuo-error, retry-after).
 */
#include "grpc/error_status.h"

#include <stddef.h>

#include <google/protobuf/any.pb-c.h>
#include <google/protobuf/duration.pb-c.h>
#include <google/rpc/error_details.pb-c.h>
#include <google/rpc/status.pb-c.h>

#include "core/text/number.h"
#include "core/text/utf8.h"
#include "grpc/protobuf_message.h"
#include "grpc/transport/grpc_call.h"

enum {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_PERMISSION_DENIED = CN_GRPC_PERMISSION_DENIED,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = CN_GRPC_INTERNAL,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16,
};

/* Maps an HTTP status that a handler chose, as TorchServe does. */
static int
code_of_http(unsigned status)
{
    static const struct {
        unsigned http;
        int grpc;
    } known[] = {
        {400, GRPC_INVALID_ARGUMENT},  {401, GRPC_UNAUTHENTICATED},
        {403, GRPC_PERMISSION_DENIED}, {404, GRPC_NOT_FOUND},
        {409, GRPC_ABORTED},           {413, GRPC_RESOURCE_EXHAUSTED},
        {416, GRPC_OUT_OF_RANGE},      {429, GRPC_RESOURCE_EXHAUSTED},
        {499, GRPC_CANCELLED},         {501, GRPC_UNIMPLEMENTED},
        {503, GRPC_UNAVAILABLE},       {504, GRPC_DEADLINE_EXCEEDED},
    };
    size_t i;

    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].http == status)
            return known[i].grpc;
    switch (status / 100) {
    case 2:
        return GRPC_OK;
    case 4:
        return GRPC_FAILED_PRECONDITION;
    case 5:
        return GRPC_INTERNAL;
    default:
        return GRPC_UNKNOWN;
    }
}

const char *
cn_rpc_status_text(struct cn_str text, struct cn_arena *arena)
{
    size_t len = cn_utf8_cut(text, CN_ERROR_MESSAGE_MAX);

    if (!cn_utf8_is_valid((struct cn_str){text.ptr, len}))
        return cn_arena_printf(
            arena, "the handler failed with a message of %zu bytes that is not text", text.len);
    return cn_arena_strndup(arena, text.ptr, len);
}

/* Replaces bytes that are not ASCII if the message is not UTF-8. Messages contain names that
 * clients sent, which may be cut in the middle of a character. */
static const char *
as_utf8(const char *message, struct cn_arena *arena)
{
    char *copy;

    if (cn_utf8_is_valid(cn_str_from(message)))
        return message;
    copy = cn_arena_strndup(arena, message, strlen(message));
    for (char *at = copy; *at; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    return copy;
}

struct cn_error *
cn_rpc_keep_error(const struct cn_error *err, struct cn_arena *arena)
{
    size_t text_bytes = strlen(err->message) + 1;
    struct cn_error *kept = cn_arena_alloc(arena, offsetof(struct cn_error, message) + text_bytes);

    kept->code = err->code;
    memcpy(kept->message, err->message, text_bytes);
    return kept;
}

/* Returns the gRPC status: the one of errors.def, or, if a handler chose an HTTP status, the
 * nearest one. */
static int
status_code(const struct cn_rpc_failure *failure)
{
    if (failure->grpc_status)
        return failure->grpc_status;
    if (failure->http_status >= 400)
        return code_of_http(failure->http_status);
    return cn_error_info(failure->code)->grpc_status;
}

static Google__Protobuf__Any
any_of(const char *type_url, const ProtobufCMessage *message, struct cn_arena *arena)
{
    Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT;
    struct cn_str bytes = cn_rpc_pack(message, arena);

    any.type_url = (char *)(uintptr_t)type_url;
    any.value.data = (uint8_t *)(uintptr_t)bytes.ptr;
    any.value.len = bytes.len;
    return any;
}

/* Seconds after which a retry makes sense; 0: it makes none. */
static uint32_t
retry_after(const struct cn_rpc_failure *failure)
{
    unsigned http = failure->http_status ? failure->http_status
                                         : (unsigned)cn_error_info(failure->code)->http_status;

    if (http != 429 && http != 503 && failure->code != CN_E_CONTENDED)
        return 0;
    return failure->retry_after_s ? failure->retry_after_s : 1;
}

static Google__Protobuf__Any
error_info(const struct cn_rpc_failure *failure, struct cn_arena *arena)
{
    const struct cn_error_info *info = cn_error_info(failure->code);
    Google__Rpc__ErrorInfo message = GOOGLE__RPC__ERROR_INFO__INIT;
    Google__Rpc__ErrorInfo__MetadataEntry type = GOOGLE__RPC__ERROR_INFO__METADATA_ENTRY__INIT;
    Google__Rpc__ErrorInfo__MetadataEntry step = GOOGLE__RPC__ERROR_INFO__METADATA_ENTRY__INIT;
    Google__Rpc__ErrorInfo__MetadataEntry *entries[] = {&type, &step};
    char name[] = "type", domain[] = "continuo", step_name[] = "expected_step", number[24];

    type.key = name;
    type.value = (char *)(uintptr_t)info->type;
    message.reason = (char *)(uintptr_t)info->word;
    message.domain = domain;
    *cn_put_uint(failure->expected_step, number) = '\0';
    step.key = step_name;
    step.value = number;
    message.n_metadata = failure->expected_step ? 2 : 1;
    message.metadata = entries;
    return any_of("type.googleapis.com/google.rpc.ErrorInfo", &message.base, arena);
}

struct cn_str
cn_rpc_status_pack(const struct cn_rpc_failure *failure, struct cn_arena *arena)
{
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    Google__Rpc__RetryInfo retry = GOOGLE__RPC__RETRY_INFO__INIT;
    Google__Protobuf__Duration delay = GOOGLE__PROTOBUF__DURATION__INIT;
    Google__Protobuf__Any details[2], *list[2] = {&details[0], &details[1]};

    details[0] = error_info(failure, arena);
    status.n_details = 1;
    delay.seconds = retry_after(failure);
    if (delay.seconds) {
        retry.retry_delay = &delay;
        details[1] = any_of("type.googleapis.com/google.rpc.RetryInfo", &retry.base, arena);
        status.n_details = 2;
    }
    status.code = status_code(failure);
    status.message = (char *)(uintptr_t)as_utf8(failure->message, arena);
    status.details = list;
    return cn_rpc_pack(&status.base, arena);
}

void
cn_rpc_fail_with(struct cn_grpc_call *call, const struct cn_rpc_failure *failure)
{
    struct cn_grpc_status status = {
        .code = status_code(failure),
        .message = as_utf8(failure->message, cn_grpc_call_arena(call)),
        .details = cn_rpc_status_pack(failure, cn_grpc_call_arena(call)),
        .word = cn_error_info(failure->code)->word,
        .retry_after_s = retry_after(failure),
    };

    cn_grpc_call_finish(call, NULL, &status);
}

void
cn_rpc_fail(struct cn_grpc_call *call, int code, const char *message, uint32_t retry_after_s)
{
    cn_rpc_fail_with(call, &(struct cn_rpc_failure){
                               .code = code, .message = message, .retry_after_s = retry_after_s});
}
