/* frontend/http/transport/http_parser.c - the grammar of HTTP/1.1 requests as a state machine. Any
 * thread.
 *
 * Each state takes one byte. Bodies and chunks are skipped as a whole. After a head whose length or
 * coding http_checks.h refuses, the rest of the connection is not read any more (UNREAD): that
 * request gets its answer, and its connection ends with it. */
#include "frontend/http/transport/http_parser.h"

#include <string.h>

#include "core/text/str.h"

enum state {
    BEFORE, /* empty lines may come before a request */
    BEFORE_LF,
    METHOD,
    TARGET,
    VERSION,
    VERSION_LF,
    LINE, /* at the start of a header line, or of the empty line */
    NAME,
    VALUE,
    VALUE_LF,
    HEAD_LF,
    BODY,
    SIZE,
    EXTENSION,
    SIZE_LF,
    CHUNK,
    CHUNK_CR,
    CHUNK_LF,
    TRAILER, /* at the start of a line of the trailer, or of the empty line */
    TRAILER_TEXT,
    TRAILER_TEXT_LF,
    TRAILER_LF,
    UNREAD,
};

enum header { OTHER, LENGTH, CODING };

#define EMPTY_LINES_MAX 8

static const char bare_cr[] = "a carriage return that no line feed follows";
static const char bare_lf[] = "a line that ends with a line feed alone";
static const char control[] = "a control character";
/* Clients of other protocols begin with these. */
#define TLS_HANDSHAKE 0x16
static const char tls[] =
    "the first byte of TLS, but this port speaks HTTP: begin the URL with http://";
static const char http2[] =
    "the version HTTP/2, but this port speaks HTTP/1.1: gRPC has a port of its own";

static bool
refuse(struct cn_http_parser *parser, const char *why)
{
    parser->why = why;
    return false;
}

/* A line feed alone has a reason of its own, since that is what hand-made requests often have. */
static bool
refuse_byte(struct cn_http_parser *parser, unsigned char c)
{
    return refuse(parser, c == '\n' ? bare_lf : control);
}

static bool
go(struct cn_http_parser *parser, enum state state)
{
    parser->state = (uint8_t)state;
    parser->at = 0;
    return true;
}

/* Keeps the start of a name or value. */
static void
keep(struct cn_http_parser *parser, const char *bytes, size_t len)
{
    const size_t room = sizeof(parser->word);

    if (parser->at < room)
        memcpy(parser->word + parser->at, bytes, len < room - parser->at ? len : room - parser->at);
    parser->at = len < UINT32_MAX - parser->at ? parser->at + (uint32_t)len : UINT32_MAX;
}

/* Is the name or value that was kept this word? */
static bool
is_word(const struct cn_http_parser *parser, struct cn_str word)
{
    return parser->at == word.len &&
           cn_str_eq_nocase((struct cn_str){parser->word, word.len}, word);
}

static bool
expect_lf(struct cn_http_parser *parser, unsigned char c, enum state next)
{
    return c == '\n' ? go(parser, next) : refuse(parser, bare_cr);
}

/* --- the request line
 *
 * Each function below takes one byte in the state of its name. It returns false if the byte is
 * refused.
 */

static bool
before(struct cn_http_parser *parser, unsigned char c)
{
    if (c == '\r' && parser->n_lengths < EMPTY_LINES_MAX) {
        parser->n_lengths++; /* counts empty lines until the request begins */
        parser->state = BEFORE_LF;
        return true;
    }
    if (!cn_is_token_char((char)c))
        return refuse(parser, c == TLS_HANDSHAKE && parser->n_heads == 0 ? tls
                              : cn_is_control_char((char)c)              ? control
                                                            : "a method that is not a word");
    *parser = (struct cn_http_parser){.state = METHOD, .n_heads = parser->n_heads};
    return true;
}

static bool
method(struct cn_http_parser *parser, unsigned char c)
{
    if (c == ' ')
        return go(parser, TARGET);
    return cn_is_token_char((char)c) || refuse(parser, "a method that is not a word");
}

static bool
target(struct cn_http_parser *parser, unsigned char c)
{
    if (c == ' ' && parser->at > 0)
        return go(parser, VERSION);
    if (c <= ' ' || c == 0x7f)
        return refuse(parser, c == ' ' ? "more than one blank after the method"
                                       : "a URL with a control character, or without a version");
    parser->at = 1;
    return true;
}

static bool
version(struct cn_http_parser *parser, unsigned char c)
{
    static const char text[] = "HTTP/1.";

    if (c == '\r' && parser->at == sizeof(text)) {
        parser->state = VERSION_LF;
        return true;
    }
    if (parser->at < sizeof(text) - 1 ? c == (unsigned char)text[parser->at]
                                      : parser->at == sizeof(text) - 1 && (c == '0' || c == '1')) {
        parser->at++;
        return true;
    }
    if (cn_is_control_char((char)c))
        return refuse_byte(parser, c);
    return refuse(parser, c == '2' && parser->at == sizeof("HTTP/") - 1
                              ? http2
                              : "a version other than HTTP/1.0 and HTTP/1.1");
}

/* --- headers */

static bool
refuse_name(struct cn_http_parser *parser, unsigned char c)
{
    return cn_is_control_char((char)c)
               ? refuse_byte(parser, c)
               : refuse(parser, "a header name with a character that is not allowed");
}

static bool
line(struct cn_http_parser *parser, unsigned char c)
{
    if (c == '\r')
        return go(parser, HEAD_LF);
    parser->n_lines++;
    if (c == ':')
        return refuse(parser, "a header without a name");
    if (c == ' ' || c == '\t') { /* a folded line: http_request.c refuses the request */
        parser->is_odd = true;
        parser->header = OTHER;
        return go(parser, VALUE);
    }
    if (!cn_is_token_char((char)c))
        return refuse_name(parser, c);
    parser->state = NAME;
    parser->at = 0;
    keep(parser, &(char){(char)c}, 1);
    return true;
}

static bool
name(struct cn_http_parser *parser, unsigned char c)
{
    if (c == ':') {
        parser->header = is_word(parser, CN_STR("content-length"))      ? LENGTH
                         : is_word(parser, CN_STR("transfer-encoding")) ? CODING
                                                                        : OTHER;
        parser->length = parser->header == LENGTH ? 0 : parser->length;
        return go(parser, VALUE);
    }
    if (!cn_is_token_char((char)c))
        return c == '\r' ? refuse(parser, "a header line without a colon") : refuse_name(parser, c);
    keep(parser, &(char){(char)c}, 1);
    return true;
}

/* Takes the value of Content-Length, which lies in `word`. Blanks at its end are refused, too.
 * Eighteen digits fit into `length`. */
static bool
end_length(struct cn_http_parser *parser)
{
    size_t i;

    for (i = 0; i < parser->at; i++) {
        if (parser->word[i] < '0' || parser->word[i] > '9')
            break;
        parser->length = parser->length * 10 + (uint64_t)(parser->word[i] - '0');
    }
    if (i == 0 || i < parser->at)
        return refuse(parser, "a Content-Length that is not one decimal number");
    parser->is_odd |= parser->n_lengths > 0;
    parser->n_lengths = parser->n_lengths ? 2 : 1;
    return true;
}

/* Takes the value of Transfer-Encoding, which lies in `word`. Blanks around it do not count. A
 * value other than chunked must be refused by http_checks.c. */
static void
end_coding(struct cn_http_parser *parser)
{
    while (parser->at > 0 && strchr(" \t", parser->word[parser->at - 1]))
        parser->at--;
    parser->is_odd |= parser->n_codings > 0 || !is_word(parser, CN_STR("chunked"));
    parser->n_codings = parser->n_codings ? 2 : 1;
}

static bool
end_value(struct cn_http_parser *parser)
{
    if (parser->header == OTHER)
        return true;
    if (parser->at >= sizeof(parser->word) - 1)
        return refuse(parser, parser->header == LENGTH ? "a Content-Length that is too long"
                                                       : "a Transfer-Encoding that is too long");
    if (parser->header == LENGTH)
        return end_length(parser);
    end_coding(parser);
    return true;
}

static bool
value(struct cn_http_parser *parser, unsigned char c)
{
    if (c == '\r') {
        if (!end_value(parser))
            return false;
        parser->state = VALUE_LF;
        return true;
    }
    if (cn_is_control_char((char)c))
        return refuse_byte(parser, c);
    if (parser->header != OTHER && (parser->at > 0 || (c != ' ' && c != '\t')))
        keep(parser, &(char){(char)c}, 1);
    return true;
}

/* The head is complete: what comes after it? */
static bool
end_head(struct cn_http_parser *parser)
{
    parser->n_heads++;
    if (parser->is_odd || (parser->n_codings && parser->n_lengths))
        return go(parser, UNREAD);
    if (parser->n_codings) {
        parser->length = 0;
        return go(parser, SIZE);
    }
    parser->left = parser->n_lengths ? parser->length : 0;
    parser->n_lengths = 0;
    return go(parser, parser->left ? BODY : BEFORE);
}

/* --- chunks */

static bool
size(struct cn_http_parser *parser, unsigned char c)
{
    int digit = cn_hex_digit((char)c);

    if (digit < 0) {
        if (parser->at == 0)
            return refuse(parser, "a chunk without a size");
        if (c == '\r')
            parser->state = SIZE_LF;
        else if (c == ';' || c == ' ' || c == '\t')
            parser->state = EXTENSION;
        else
            return c == '\n' ? refuse(parser, bare_lf)
                             : refuse(parser, "a chunk size that is not hexadecimal");
        return true;
    }
    if (parser->length >> 58 || parser->at == CN_HTTP_CHUNK_LINE_MAX)
        return refuse(parser, "a chunk size that is too large");
    parser->length = parser->length * 16 + (unsigned)digit;
    parser->at++;
    return true;
}

static bool
extension(struct cn_http_parser *parser, unsigned char c)
{
    if (c == '\r')
        parser->state = SIZE_LF;
    else if (cn_is_control_char((char)c))
        return refuse_byte(parser, c);
    else if (++parser->at >= CN_HTTP_CHUNK_LINE_MAX)
        return refuse(parser, "a line with a chunk's size that is too long");
    return true;
}

static bool
end_size(struct cn_http_parser *parser, unsigned char c)
{
    if (c != '\n')
        return refuse(parser, bare_cr);
    parser->left = parser->length;
    parser->length = 0;
    return go(parser, parser->left ? CHUNK : TRAILER);
}

static bool
end_chunk(struct cn_http_parser *parser, unsigned char c)
{
    parser->state = CHUNK_LF;
    return c == '\r' || refuse(parser, "a chunk that is longer than its size");
}

static bool
trailer(struct cn_http_parser *parser, unsigned char c)
{
    if (c == '\r') {
        parser->state = parser->at == 0 ? TRAILER_LF : TRAILER_TEXT_LF;
        return true;
    }
    if (parser->at == 0 && (c == ':' || c == ' ' || c == '\t'))
        return refuse(parser, "a line of the trailer without a name");
    if (cn_is_control_char((char)c))
        return refuse_byte(parser, c);
    parser->at = 1;
    return true;
}

static bool
end_trailer(struct cn_http_parser *parser, unsigned char c)
{
    parser->n_lengths = parser->n_codings = 0;
    return expect_lf(parser, c, BEFORE);
}

/* Takes one byte. Returns false when it is not allowed. */
static bool
take(struct cn_http_parser *parser, unsigned char c)
{
    switch ((enum state)parser->state) {
    case BEFORE:
        return before(parser, c);
    case BEFORE_LF:
        return expect_lf(parser, c, BEFORE);
    case METHOD:
        return method(parser, c);
    case TARGET:
        return target(parser, c);
    case VERSION:
        return version(parser, c);
    case VERSION_LF:
    case VALUE_LF:
        return expect_lf(parser, c, LINE);
    case LINE:
        return line(parser, c);
    case NAME:
        return name(parser, c);
    case VALUE:
        return value(parser, c);
    case HEAD_LF:
        return c == '\n' ? end_head(parser) : refuse(parser, bare_cr);
    case SIZE:
        return size(parser, c);
    case EXTENSION:
        return extension(parser, c);
    case SIZE_LF:
        return end_size(parser, c);
    case CHUNK_CR:
        return end_chunk(parser, c);
    case CHUNK_LF:
        return expect_lf(parser, c, SIZE);
    case TRAILER:
    case TRAILER_TEXT:
        return trailer(parser, c);
    case TRAILER_TEXT_LF:
        return expect_lf(parser, c, TRAILER);
    case TRAILER_LF:
        return end_trailer(parser, c);
    case BODY:
    case CHUNK:
    case UNREAD:
        break; /* cn_http_parser_next() skips these */
    }
    return true;
}

/* Keeps a run of a name's bytes, and returns how many there are. */
static size_t
keep_name(struct cn_http_parser *parser, const char *bytes, size_t len)
{
    const size_t n = cn_text_token_len(bytes, len);

    keep(parser, bytes, n);
    return n;
}

/* Takes the bytes that can be taken at once, because each of them leaves the state as it is or, for
 * the version, because all are known. Returns how many these are. Almost all bytes of a head are
 * taken here; the others, and each byte that is refused, go through take(). */
static size_t
take_run(struct cn_http_parser *parser, const char *bytes, size_t len)
{
    static const char version_end[] = "HTTP/1.1\r";
    size_t n = 0;

    switch ((enum state)parser->state) {
    case METHOD:
        return cn_text_token_len(bytes, len);
    case TARGET:
        while (n < len && (unsigned char)bytes[n] > ' ' && bytes[n] != 0x7f)
            n++;
        if (n > 0)
            parser->at = 1;
        break;
    case VERSION:
        n = sizeof(version_end) - 1;
        if (parser->at > 0 || len < n || memcmp(bytes, version_end, n) != 0)
            return 0;
        parser->at = (uint32_t)n;
        parser->state = VERSION_LF;
        break;
    case NAME:
        return keep_name(parser, bytes, len);
    case VALUE:
        return parser->header == OTHER ? cn_text_without_control(bytes, len) : 0;
    default:
        break;
    }
    return n;
}

/* Takes bytes of a body or of a chunk, which need no look. */
static size_t
take_data(struct cn_http_parser *parser, size_t len)
{
    const size_t n = parser->left < len ? (size_t)parser->left : len;

    cn_http_parser_skip(parser, n);
    return n;
}

static bool
is_in_data(const struct cn_http_parser *parser)
{
    return parser->state == BODY || parser->state == CHUNK;
}

size_t
cn_http_parser_next(struct cn_http_parser *parser, const char *bytes, size_t len,
                    enum cn_http_event *event)
{
    const uint64_t n_heads = parser->n_heads;
    size_t i = 0;

    *event = CN_PARSED_MORE;
    if (parser->state == UNREAD)
        return len;
    if (is_in_data(parser)) {
        *event = CN_PARSED_DATA;
        return take_data(parser, len);
    }
    while (i < len && !is_in_data(parser)) {
        const bool ends = parser->state == TRAILER_LF;

        if (!take(parser, (unsigned char)bytes[i])) {
            *event = CN_PARSED_BAD;
            return i;
        }
        i++;
        if (parser->n_heads > n_heads) {
            *event = CN_PARSED_HEAD;
            return i;
        }
        if (ends) /* the message is complete, and the next one is not begun */
            return i;
        i += take_run(parser, bytes + i, len - i);
    }
    return i;
}

void
cn_http_parser_skip(struct cn_http_parser *parser, size_t len)
{
    parser->left -= len;
    if (parser->left == 0)
        go(parser, parser->state == BODY ? BEFORE : CHUNK_CR);
}

bool
cn_http_parser_is_between(const struct cn_http_parser *parser)
{
    return parser->state == BEFORE;
}

bool
cn_http_parser_is_in_head(const struct cn_http_parser *parser)
{
    return parser->state >= METHOD && parser->state <= HEAD_LF;
}

bool
cn_http_parser_is_in_body(const struct cn_http_parser *parser)
{
    return parser->state == BODY;
}
