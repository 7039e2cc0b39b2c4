/* grpc/transport/metadata.c - a request's metadata: what gRPC itself needs, and the rest for the
 * method. The names are those of "gRPC over HTTP2" (PROTOCOL-HTTP2.md of the gRPC project).
 *
 * nghttp2 has checked that names are lower case, that values have no control characters, and that
 * the pseudo-headers of HTTP/2 come first and once.
 */
#include <sodium.h>
#include <string.h>

#include "core/time/clock.h"
#include "grpc/error_status.h"
#include "grpc/transport/transport_priv.h"

#define HEADER_EXTRA_BYTES 32 /* what HTTP/2 adds to the size of each header (RFC 9113, 10.5.1) */
#define FIRST_ROOM 8

uint64_t
cn_grpc_timeout_ms(struct cn_str text)
{
    static const struct {
        char letter;
        uint64_t us; /* of one unit; 0: a nanosecond */
    } units[] = {{'H', 3600000000}, {'M', 60000000}, {'S', 1000000},
                 {'m', 1000},       {'u', 1},        {'n', 0}};
    uint64_t value = 0, us;

    if (text.len < 2 || text.len > 9) /* at most eight digits */
        return CN_NEVER;
    for (size_t i = 0; i + 1 < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return CN_NEVER;
        value = value * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (units[i].letter == text.ptr[text.len - 1]) {
            us = units[i].us ? value * units[i].us : (value + 999) / 1000;
            return (us + 999) / 1000;
        }
    return CN_NEVER;
}

static void
refuse(struct cn_grpc_head *head, int code, const char *why)
{
    if (head->wrong)
        return;
    head->wrong = why;
    head->wrong_code = code;
}

/* --- headers of gRPC itself */

static void
take_method(struct cn_grpc_head *head, const struct cn_grpc_site *site, struct cn_str value)
{
    (void)site;
    head->is_post = cn_str_eq(value, CN_STR("POST"));
}

static void
take_path(struct cn_grpc_head *head, const struct cn_grpc_site *site, struct cn_str value)
{
    (void)site;
    head->path = cn_arena_str(&head->arena, value);
}

static void
take_type(struct cn_grpc_head *head, const struct cn_grpc_site *site, struct cn_str value)
{
    const struct cn_str type = CN_STR("application/grpc");

    (void)site;
    head->is_grpc = cn_str_begins(value, type) &&
                    (value.len == type.len || memchr("+;", value.ptr[type.len], 2));
}

static void
take_timeout(struct cn_grpc_head *head, const struct cn_grpc_site *site, struct cn_str value)
{
    const uint64_t ms = cn_grpc_timeout_ms(value);

    (void)site;
    if (ms == CN_NEVER)
        refuse(
            head, CN_E_BAD_REQUEST,
            "grpc-timeout is not a timeout: it must be one to eight digits and H, M, S, m, u or n");
    else
        head->deadline_ms = cn_now_ms() + 1 + ms; /* never before the client's own */
}

static void
take_encoding(struct cn_grpc_head *head, const struct cn_grpc_site *site, struct cn_str value)
{
    (void)site;
    if (cn_str_eq(value, CN_STR("gzip")))
        head->coding = CN_CODING_GZIP;
    else if (cn_str_eq(value, CN_STR("deflate")))
        head->coding = CN_CODING_DEFLATE;
    else if (!cn_str_eq(value, CN_STR("identity")))
        refuse(head, CN_E_UNIMPLEMENTED,
               "the grpc-encoding is not known; use identity, gzip or deflate");
}

static void
take_accepted(struct cn_grpc_head *head, const struct cn_grpc_site *site, struct cn_str value)
{
    (void)site;
    while (value.len && !head->accepts_gzip) {
        struct cn_str item = cn_str_cut(&value, ',');

        while (item.len && item.ptr[0] == ' ')
            item = (struct cn_str){item.ptr + 1, item.len - 1};
        head->accepts_gzip = cn_str_eq(item, CN_STR("gzip"));
    }
}

static void
ignore(struct cn_grpc_head *head, const struct cn_grpc_site *site, struct cn_str value)
{
    (void)head, (void)site, (void)value;
}

static const struct {
    struct cn_str name;
    void (*take)(struct cn_grpc_head *head, const struct cn_grpc_site *site, struct cn_str value);
} known[] = {
    {CN_STR(":method"), take_method},
    {CN_STR(":path"), take_path},
    {CN_STR(":scheme"), ignore},
    {CN_STR(":authority"), ignore},
    {CN_STR("te"), ignore},
    {CN_STR("content-type"), take_type},
    {CN_STR("content-length"), ignore},
    {CN_STR("grpc-timeout"), take_timeout},
    {CN_STR("grpc-encoding"), take_encoding},
    {CN_STR("grpc-accept-encoding"), take_accepted},
};

/* --- */

/* Only names that begin with one of these letters can be in the table above. */
static bool
may_be_known(struct cn_str name)
{
    return name.len > 1 &&
           (name.ptr[0] == ':' || name.ptr[0] == 'g' || name.ptr[0] == 'c' || name.ptr[0] == 't');
}

/* Decodes base64, with or without its padding. Returns false if it is not base64. */
static bool
decode(struct cn_str text, struct cn_arena *arena, struct cn_str *out)
{
    unsigned char *bytes;
    size_t len;

    while (text.len && text.ptr[text.len - 1] == '=')
        text.len--;
    bytes = cn_arena_alloc(arena, text.len + 1);
    if (sodium_base642bin(bytes, text.len, text.ptr, text.len, NULL, &len, NULL,
                          sodium_base64_VARIANT_ORIGINAL_NO_PADDING))
        return false;
    *out = (struct cn_str){(const char *)bytes, len};
    return true;
}

static void
add(struct cn_grpc_head *head, struct cn_str name, struct cn_str value)
{
    struct cn_header *more;

    if (head->n_headers == head->room) {
        head->room = head->room ? 2 * head->room : FIRST_ROOM;
        more = cn_arena_alloc(&head->arena, head->room * sizeof(*more));
        if (head->n_headers)
            memcpy(more, head->headers, head->n_headers * sizeof(*more));
        head->headers = more;
    }
    head->headers[head->n_headers++] = (struct cn_header){name, value};
}

/* Counts a header. Returns false if it is one too many. */
static bool
fits(struct cn_grpc_head *head, const struct cn_grpc_site *site, size_t bytes)
{
    head->bytes += bytes + HEADER_EXTRA_BYTES;
    if (head->bytes <= site->grpc->limits.metadata_bytes)
        return true;
    refuse(head, CN_E_HEADERS_TOO_LARGE,
           "the metadata are too large (connection-memory is the limit)");
    return false;
}

/* Keeps the value of a name that ends with -bin, which is base64. A proxy may have joined several
 * values with commas; each of them is a header again. */
static void
keep_bytes(struct cn_grpc_head *head, const struct cn_grpc_site *site, struct cn_str name,
           struct cn_str value)
{
    struct cn_str bytes, item = cn_str_cut(&value, ',');

    for (;;) {
        if (!decode(cn_str_trim(item), &head->arena, &bytes)) {
            refuse(head, CN_E_BAD_REQUEST,
                   "the value of a metadata name that ends with -bin is not base64");
            return;
        }
        add(head, name, bytes);
        if (value.len == 0 || !fits(head, site, name.len))
            return;
        item = cn_str_cut(&value, ',');
    }
}

/* Keeps a header for the method. */
static void
keep(struct cn_grpc_head *head, const struct cn_grpc_site *site, struct cn_str name,
     struct cn_str value)
{
    const struct cn_str bin = CN_STR("-bin");

    name = cn_arena_str(&head->arena, name);
    if (name.len < bin.len || memcmp(name.ptr + name.len - bin.len, bin.ptr, bin.len) != 0)
        add(head, name, cn_arena_str(&head->arena, value));
    else
        keep_bytes(head, site, name, value);
}

void
cn_grpc_head_add(struct cn_grpc_head *head, const struct cn_grpc_site *site, struct cn_str name,
                 struct cn_str value)
{
    if (!fits(head, site, name.len + value.len))
        return;
    for (size_t i = 0; may_be_known(name) && i < sizeof(known) / sizeof(known[0]); i++)
        if (cn_str_eq(name, known[i].name)) {
            known[i].take(head, site, value);
            return;
        }
    keep(head, site, name, value);
}
