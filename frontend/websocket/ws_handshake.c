/* frontend/websocket/ws_handshake.c - the headers of the opening handshake. Any thread, no
 * state.
 *
 * A client asks for a WebSocket with an HTTP request like this one, and gets status 101 with the
 * last two headers:
 *   GET /v1/streams/counter/user-1 HTTP/1.1
 *   Upgrade: websocket
 *   Connection: keep-alive, Upgrade
 *   Sec-WebSocket-Version: 13
 *   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==
 *   Sec-WebSocket-Protocol: continuo.v1.json, continuo.key.SECRET
 *
 *   Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=
 *   Sec-WebSocket-Protocol: continuo.v1.json
 *
 * The lists are separated by commas, and a header may also come several times. Both are the same
 * list, so everything here goes through all headers with the name. */
#include "frontend/websocket/ws_handshake.h"

#include <gnutls/crypto.h>
#include <string.h>

#include "core/text/number.h"
#include "frontend/http/http_checks.h"
#include "frontend/intake/headers.h"
#include "frontend/websocket/ws_deflate.h"

#define KEY_BYTES 24 /* 16 bytes in base64 */
#define SHA1_BYTES 20
#define GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11" /* RFC 6455, 1.3 */

static const struct {
    const char *name;
    enum cn_ws_form form;
} protocols[] = {
    {"continuo.v1.plain", CN_WS_PLAIN},
    {"continuo.v1.json", CN_WS_JSON},
    {"continuo.v1.binary", CN_WS_BINARY},
};

/* Takes the next word of a list off `list`. Returns false at its end. */
static bool
next_word(struct cn_str *list, char separator, struct cn_str *word)
{
    const char *found;
    size_t len;

    if (list->len == 0)
        return false;
    found = memchr(list->ptr, separator, list->len);
    len = found ? (size_t)(found - list->ptr) : list->len;
    *word = cn_str_trim((struct cn_str){list->ptr, len});
    len += found != NULL;
    *list = (struct cn_str){list->ptr + len, list->len - len};
    return true;
}

static bool
has_word(const struct cn_header *headers, uint32_t n, struct cn_str name, struct cn_str word)
{
    for (uint32_t i = 0; i < n; i++) {
        struct cn_str list = headers[i].value, each;

        if (!cn_str_eq_nocase(headers[i].name, name))
            continue;
        while (next_word(&list, ',', &each))
            if (cn_str_eq_nocase(each, word))
                return true;
    }
    return false;
}

/* Answers the client's key: SHA-1 of the key's text and the GUID, in base64. Nothing here is
 * secret: it only proves that the server knows WebSockets and that no cache has answered in its
 * place. */
static void
make_accept(struct cn_str key, char out[CN_WS_ACCEPT_BYTES])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[KEY_BYTES + sizeof(GUID) - 1];
    unsigned char hash[SHA1_BYTES + 1] = {0};
    char *at = out;

    memcpy(text, key.ptr, KEY_BYTES);
    memcpy(text + KEY_BYTES, GUID, sizeof(GUID) - 1);
    gnutls_hash_fast(GNUTLS_DIG_SHA1, text, sizeof(text), hash);
    for (size_t i = 0; i < SHA1_BYTES; i += 3) {
        const uint32_t bits = (uint32_t)hash[i] << 16 | (uint32_t)hash[i + 1] << 8 |
                              (i + 2 < SHA1_BYTES ? hash[i + 2] : 0u);

        for (int shift = 18; shift >= 0; shift -= 6)
            *at++ = digits[bits >> shift & 63];
    }
    at[-1] = '='; /* 20 bytes are 6 groups of 3, and 2 more */
    *at = '\0';
}

/* --- subprotocols */

struct cn_str
cn_ws_find_key(const struct cn_header *headers, uint32_t n)
{
    const size_t prefix = sizeof(CN_WS_KEY_PROTOCOL) - 1;

    for (uint32_t i = 0; i < n; i++) {
        struct cn_str list = headers[i].value, word;

        if (!cn_str_eq_nocase(headers[i].name, CN_STR("sec-websocket-protocol")))
            continue;
        while (next_word(&list, ',', &word))
            if (word.len >= prefix && memcmp(word.ptr, CN_WS_KEY_PROTOCOL, prefix) == 0)
                return (struct cn_str){word.ptr + prefix, word.len - prefix};
    }
    return (struct cn_str){NULL, 0};
}

static bool
is_known(struct cn_str word, struct cn_ws_handshake *out)
{
    for (size_t i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++)
        if (cn_str_eq(word, cn_str_from(protocols[i].name))) {
            out->form = protocols[i].form;
            out->protocol = protocols[i].name;
            return true;
        }
    return false;
}

/* Takes the first subprotocol of the client's list that we know. Without any list the stream has
 * the plain form. If the client offers only others, it is refused, because browsers give a
 * connection up whose answer chooses none of them, and say no reason. A key is offered as a
 * subprotocol, too, and never chosen. */
static int
choose_protocol(const struct cn_header *headers, uint32_t n, struct cn_ws_handshake *out,
                struct cn_error *err)
{
    struct cn_str unknown = {NULL, 0};

    for (uint32_t i = 0; i < n; i++) {
        struct cn_str list = headers[i].value, word;

        if (!cn_str_eq_nocase(headers[i].name, CN_STR("sec-websocket-protocol")))
            continue;
        while (next_word(&list, ',', &word)) {
            if (is_known(word, out))
                return 0;
            if (!unknown.ptr)
                unknown = word;
        }
    }
    if (!unknown.ptr)
        return 0;
    if (unknown.len >= sizeof(CN_WS_KEY_PROTOCOL) - 1 &&
        memcmp(unknown.ptr, CN_WS_KEY_PROTOCOL, sizeof(CN_WS_KEY_PROTOCOL) - 1) == 0)
        unknown = CN_STR(CN_WS_KEY_PROTOCOL "..."); /* a message must not show a key */
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "the subprotocol %.*s is unknown; offer continuo.v1.json, continuo.v1.binary or "
                   "continuo.v1.plain (Sec-WebSocket-Protocol)",
                   (int)(unknown.len > 80 ? 80 : unknown.len), unknown.ptr);
}

/* --- permessage-deflate */

/* Reads a number of window bits, 8 to 15, perhaps in quotes; 0: it is not one. */
static unsigned
window_bits_of(struct cn_str text)
{
    uint64_t bits = 0;

    if (text.len >= 2 && text.ptr[0] == '"' && text.ptr[text.len - 1] == '"')
        text = (struct cn_str){text.ptr + 1, text.len - 2};
    if (text.len == 0 || text.ptr[0] == '0' || !cn_read_uint(text, CN_WS_WINDOW_MAX, &bits))
        return 0;
    return bits >= 8 ? (unsigned)bits : 0;
}

struct offer {
    bool server_bits_given, client_bits_given, server_alone, client_alone;
    unsigned server_bits;
};

/* Reads one parameter of an offer. Returns false if the offer must be declined (RFC 7692, 7.1). */
static bool
read_parameter(struct cn_str word, struct offer *offer)
{
    struct cn_str name, value;
    bool *flag = NULL;

    if (!next_word(&word, '=', &name)) /* nothing between two semicolons */
        return false;
    value = cn_str_trim(word);
    if (cn_str_eq_nocase(name, CN_STR("server_no_context_takeover")))
        flag = &offer->server_alone;
    else if (cn_str_eq_nocase(name, CN_STR("client_no_context_takeover")))
        flag = &offer->client_alone;
    else if (cn_str_eq_nocase(name, CN_STR("client_max_window_bits")))
        flag = &offer->client_bits_given;
    else if (cn_str_eq_nocase(name, CN_STR("server_max_window_bits")))
        flag = &offer->server_bits_given;
    if (!flag || *flag)
        return false; /* unknown, or twice */
    *flag = true;
    if (flag == &offer->server_bits_given) {
        offer->server_bits = window_bits_of(value);
        return offer->server_bits >= CN_WS_WINDOW_MIN;
    }
    if (flag == &offer->client_bits_given)
        return value.len == 0 || window_bits_of(value);
    return value.len == 0;
}

/* Accepts an offer if the server can keep all that it asks for.
 *
 * A client may make several offers, the one that it likes best first:
 *   permessage-deflate; server_max_window_bits=8, permessage-deflate; client_max_window_bits
 * Here the first one is declined, because zlib has no window of 8 bits, and the second one is
 * accepted. The answer always asks for no context takeover on both sides: each message is then
 * compressed by itself, so streams can share one compressor, and an idle stream costs no window. */
static bool
accept_offer(struct cn_str words, struct cn_arena *arena, struct cn_ws_handshake *out)
{
    struct offer offer = {.server_bits = CN_WS_WINDOW_MAX};
    struct cn_str word;

    if (!next_word(&words, ';', &word) || !cn_str_eq_nocase(word, CN_STR("permessage-deflate")))
        return false;
    while (next_word(&words, ';', &word))
        if (!read_parameter(word, &offer))
            return false;
    out->window_bits = offer.server_bits;
    out->extensions =
        offer.server_bits_given
            ? cn_arena_printf(arena,
                              "permessage-deflate; server_no_context_takeover; "
                              "client_no_context_takeover; server_max_window_bits=%u",
                              offer.server_bits)
            : "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    return true;
}

static void
choose_extension(const struct cn_header *headers, uint32_t n, struct cn_arena *arena,
                 struct cn_ws_handshake *out)
{
    for (uint32_t i = 0; i < n; i++) {
        struct cn_str list = headers[i].value, each;

        if (!cn_str_eq_nocase(headers[i].name, CN_STR("sec-websocket-extensions")))
            continue;
        while (next_word(&list, ',', &each))
            if (accept_offer(each, arena, out))
                return;
    }
}

/* --- together */

static int
not_a_handshake(const char *why, struct cn_error *err)
{
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "this address is for WebSockets, and the request is not a handshake: %s; see "
                   "docs/streams.md",
                   why);
}

int
cn_ws_handshake_read(const struct cn_header *headers, uint32_t n, bool is_http_1_1,
                     struct cn_arena *arena, struct cn_ws_handshake *out, struct cn_error *err)
{
    const struct cn_header *key, *version;

    *out = (struct cn_ws_handshake){.form = CN_WS_PLAIN};
    if (!is_http_1_1)
        return not_a_handshake("it is not HTTP/1.1", err);
    if (!has_word(headers, n, CN_STR("upgrade"), CN_STR("websocket")))
        return not_a_handshake("it has no header Upgrade: websocket", err);
    if (!has_word(headers, n, CN_STR("connection"), CN_STR("upgrade")))
        return not_a_handshake("it has no header Connection: Upgrade", err);
    version = cn_header_find(headers, n, CN_STR("sec-websocket-version"));
    if (!version || !cn_str_eq(version->value, CN_STR("13")))
        return not_a_handshake("Sec-WebSocket-Version is not 13", err);
    key = cn_header_find(headers, n, CN_STR("sec-websocket-key"));
    if (!key || key->value.len != KEY_BYTES || memcmp(key->value.ptr + KEY_BYTES - 2, "==", 2) != 0)
        return not_a_handshake("Sec-WebSocket-Key is not 16 bytes in base64", err);
    make_accept(key->value, out->accept);
    choose_extension(headers, n, arena, out);
    return choose_protocol(headers, n, out, err);
}
