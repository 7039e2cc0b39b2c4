/* grpc/transport/trailers.c - the head and the status of an answer, as headers of HTTP/2. On the
 * call's loop. The names are those of "gRPC over HTTP2" (PROTOCOL-HTTP2.md of the gRPC project).
 */
#include <sodium.h>

#include "grpc/transport/transport_priv.h"

#define HEADERS_MAX (CN_GRPC_CALL_HEADERS + 10)

struct list {
    nghttp2_nv nv[HEADERS_MAX];
    size_t n;
};

/* nghttp2 need not copy: names and FIXED values are static, and the others are in the call's arena,
 * which lasts longer than the stream. A value that differs from call to call should not push others
 * out of the client's table of headers. Those of the first answer go there all the same, so that
 * later ones need not spell the names. */
#define FIXED (NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE)
#define VARIES (FIXED | NGHTTP2_NV_FLAG_NO_INDEX)

static void
add(struct list *list, struct cn_str name, struct cn_str value, uint8_t flags)
{
    list->nv[list->n++] = (nghttp2_nv){(uint8_t *)(uintptr_t)name.ptr,
                                       (uint8_t *)(uintptr_t)value.ptr, name.len, value.len, flags};
}

/* Encodes a message for grpc-message: all but printable ASCII as %XX, and the percent sign, too. A
 * blank at either end would make the header malformed (RFC 9113, 8.2.1), so it is encoded as well.
 */
static struct cn_str
percent_encode(struct cn_str text, struct cn_arena *arena)
{
    static const char digits[] = "0123456789ABCDEF";
    char *out = cn_arena_alloc(arena, 3 * text.len + 1), *at = out;

    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        const bool is_edge = i == 0 || i + 1 == text.len;

        if (c >= (is_edge ? 0x21 : 0x20) && c < 0x7f && c != '%') {
            *at++ = (char)c;
            continue;
        }
        *at++ = '%';
        *at++ = digits[c >> 4];
        *at++ = digits[c & 15];
    }
    return (struct cn_str){out, (size_t)(at - out)};
}

static struct cn_str
base64(struct cn_str bytes, struct cn_arena *arena)
{
    const int variant = sodium_base64_VARIANT_ORIGINAL_NO_PADDING;
    size_t room = sodium_base64_encoded_len(bytes.len, variant);
    char *out = cn_arena_alloc(arena, room);

    sodium_bin2base64(out, room, (const unsigned char *)bytes.ptr, bytes.len, variant);
    return (struct cn_str){out, room - 1};
}

/* The codes of gRPC, as text. */
static const char *const codes[] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                    "9", "10", "11", "12", "13", "14", "15", "16"};

static void
add_status(struct list *list, struct cn_grpc_call *call)
{
    struct cn_arena *arena = &call->head.arena;
    unsigned code = (unsigned)call->code < sizeof(codes) / sizeof(codes[0]) ? (unsigned)call->code
                                                                            : 2 /* UNKNOWN */;

    add(list, CN_STR("grpc-status"), cn_str_from(codes[code]), FIXED);
    if (call->text.len)
        add(list, CN_STR("grpc-message"), percent_encode(call->text, arena), VARIES);
    if (call->details.len)
        add(list, CN_STR("grpc-status-details-bin"), base64(call->details, arena), VARIES);
    if (call->word)
        add(list, CN_STR("continuo-error"), cn_str_from(call->word), FIXED);
    if (call->retry_after_s)
        add(list, CN_STR("retry-after"),
            cn_str_from(cn_arena_printf(arena, "%u", call->retry_after_s)), FIXED);
}

void
cn_grpc_submit_head(struct cn_grpc_call *call)
{
    const nghttp2_data_provider data = {{.ptr = call}, cn_grpc_on_data_wanted};
    /* A status without a message is the whole answer, unless metadata come before it. */
    const bool alone = call->is_finishing && call->out_bytes == 0 && call->n_add == 0;
    struct list list = {.n = 0};

    add(&list, CN_STR(":status"), CN_STR("200"), FIXED);
    add(&list, CN_STR("content-type"), CN_STR("application/grpc"), FIXED);
    if (call->site->grpc->limits.compress_bytes && call->head.accepts_gzip)
        add(&list, CN_STR("grpc-encoding"), CN_STR("gzip"), FIXED);
    add(&list, CN_STR("grpc-accept-encoding"), CN_STR("identity,deflate,gzip"), FIXED);
    for (uint32_t i = 0; i < call->n_add; i++)
        add(&list, call->add[i].name, call->add[i].value, call->conn->named ? VARIES : FIXED);
    call->conn->named |= call->n_add > 0;
    if (alone)
        add_status(&list, call);
    call->status_given = alone;
    nghttp2_submit_response(call->conn->h2, call->stream, list.nv, list.n, alone ? NULL : &data);
}

void
cn_grpc_submit_trailers(struct cn_grpc_call *call)
{
    struct list list = {.n = 0};

    add_status(&list, call);
    call->status_given = true;
    nghttp2_submit_trailer(call->conn->h2, call->stream, list.nv, list.n);
}

void
cn_grpc_submit_http_status(struct cn_grpc_conn *conn, int32_t stream, const char *status)
{
    struct list list = {.n = 0};

    add(&list, CN_STR(":status"), cn_str_from(status), FIXED);
    nghttp2_submit_response(conn->h2, stream, list.nv, list.n, NULL);
}

void
cn_grpc_call_add_header(struct cn_grpc_call *call, const char *name, struct cn_str value)
{
    struct cn_header *header;

    if (call->answered || call->n_add == CN_GRPC_CALL_HEADERS)
        return;
    header = &call->add[call->n_add++];
    header->name = cn_str_from(name);
    header->value = cn_arena_str(&call->head.arena, value);
}
