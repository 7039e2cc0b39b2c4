/* frontend/guard/http_strict.c - the grammar of HTTP/1.1 requests as a state machine. Any thread.
 *
 * Each state takes one byte. Bodies and chunks are skipped as a whole. After a head whose length or
 * coding http_checks.h refuses, the rest of the connection is not read any more (UNREAD): that
 * request gets its answer, and its connection ends with it. */
#include "frontend/guard/http_strict.h"

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
refuse(struct cn_http_strict *strict, const char *why)
{
    strict->why = why;
    return false;
}

/* A line feed alone has a reason of its own, since that is what hand-made requests often have. */
static bool
refuse_byte(struct cn_http_strict *strict, unsigned char c)
{
    return refuse(strict, c == '\n' ? bare_lf : control);
}

static bool
go(struct cn_http_strict *strict, enum state state)
{
    strict->state = (uint8_t)state;
    strict->at = 0;
    return true;
}

/* Keeps the start of a name or value. */
static void
keep(struct cn_http_strict *strict, const char *bytes, size_t len)
{
    const size_t room = sizeof(strict->word);

    if (strict->at < room)
        memcpy(strict->word + strict->at, bytes, len < room - strict->at ? len : room - strict->at);
    strict->at = len < UINT32_MAX - strict->at ? strict->at + (uint32_t)len : UINT32_MAX;
}

/* Is the name or value that was kept this word? */
static bool
is_word(const struct cn_http_strict *strict, struct cn_str word)
{
    return strict->at == word.len &&
           cn_str_eq_nocase((struct cn_str){strict->word, word.len}, word);
}

static bool
expect_lf(struct cn_http_strict *strict, unsigned char c, enum state next)
{
    return c == '\n' ? go(strict, next) : refuse(strict, bare_cr);
}

/* --- the request line
 *
 * Each function below takes one byte in the state of its name. It returns false if the byte is
 * refused.
 */

static bool
before(struct cn_http_strict *strict, unsigned char c)
{
    if (c == '\r' && strict->n_lengths < EMPTY_LINES_MAX) {
        strict->n_lengths++; /* counts empty lines until the request begins */
        strict->state = BEFORE_LF;
        return true;
    }
    if (!cn_is_token_char((char)c))
        return refuse(strict, c == TLS_HANDSHAKE && strict->n_heads == 0 ? tls
                              : cn_is_control_char((char)c)              ? control
                                                            : "a method that is not a word");
    *strict = (struct cn_http_strict){.state = METHOD, .n_heads = strict->n_heads};
    return true;
}

static bool
method(struct cn_http_strict *strict, unsigned char c)
{
    if (c == ' ')
        return go(strict, TARGET);
    return cn_is_token_char((char)c) || refuse(strict, "a method that is not a word");
}

static bool
target(struct cn_http_strict *strict, unsigned char c)
{
    if (c == ' ' && strict->at > 0)
        return go(strict, VERSION);
    if (c <= ' ' || c == 0x7f)
        return refuse(strict, c == ' ' ? "more than one blank after the method"
                                       : "a URL with a control character, or without a version");
    strict->at = 1;
    return true;
}

static bool
version(struct cn_http_strict *strict, unsigned char c)
{
    static const char text[] = "HTTP/1.";

    if (c == '\r' && strict->at == sizeof(text)) {
        strict->state = VERSION_LF;
        return true;
    }
    if (strict->at < sizeof(text) - 1 ? c == (unsigned char)text[strict->at]
                                      : strict->at == sizeof(text) - 1 && (c == '0' || c == '1')) {
        strict->at++;
        return true;
    }
    if (cn_is_control_char((char)c))
        return refuse_byte(strict, c);
    return refuse(strict, c == '2' && strict->at == sizeof("HTTP/") - 1
                              ? http2
                              : "a version other than HTTP/1.0 and HTTP/1.1");
}

/* --- headers */

static bool
line(struct cn_http_strict *strict, unsigned char c)
{
    if (c == '\r')
        return go(strict, HEAD_LF);
    if (c == ':')
        return refuse(strict, "a header without a name");
    if (c == ' ' || c == '\t') { /* a folded line: http_request.c refuses the request */
        strict->is_odd = true;
        strict->header = OTHER;
        return go(strict, VALUE);
    }
    if (cn_is_control_char((char)c))
        return refuse_byte(strict, c);
    strict->state = NAME;
    strict->at = 0;
    keep(strict, &(char){(char)c}, 1);
    return true;
}

static bool
name(struct cn_http_strict *strict, unsigned char c)
{
    if (c == ':') {
        strict->header = is_word(strict, CN_STR("content-length"))      ? LENGTH
                         : is_word(strict, CN_STR("transfer-encoding")) ? CODING
                                                                        : OTHER;
        strict->length = strict->header == LENGTH ? 0 : strict->length;
        return go(strict, VALUE);
    }
    if (cn_is_control_char((char)c))
        return c == '\r' ? refuse(strict, "a header line without a colon") : refuse_byte(strict, c);
    keep(strict, &(char){(char)c}, 1);
    return true;
}

/* Takes the value of Content-Length, which lies in `word`. libmicrohttpd cannot be left to refuse
 * a value that is not a number: it begins its answer twice then, and a proxy takes the second
 * beginning for the first one's body, or for the next answer. It also refuses blanks at the end.
 * Eighteen digits fit into `length`. */
static bool
end_length(struct cn_http_strict *strict)
{
    size_t i;

    for (i = 0; i < strict->at; i++) {
        if (strict->word[i] < '0' || strict->word[i] > '9')
            break;
        strict->length = strict->length * 10 + (uint64_t)(strict->word[i] - '0');
    }
    if (i == 0 || i < strict->at)
        return refuse(strict, "a Content-Length that is not one decimal number");
    strict->is_odd |= strict->n_lengths > 0;
    strict->n_lengths = strict->n_lengths ? 2 : 1;
    return true;
}

/* Takes the value of Transfer-Encoding, which lies in `word`. Blanks around it do not count. A
 * value other than chunked must be refused by http_checks.c. */
static void
end_coding(struct cn_http_strict *strict)
{
    while (strict->at > 0 && strchr(" \t", strict->word[strict->at - 1]))
        strict->at--;
    strict->is_odd |= strict->n_codings > 0 || !is_word(strict, CN_STR("chunked"));
    strict->n_codings = strict->n_codings ? 2 : 1;
}

static bool
end_value(struct cn_http_strict *strict)
{
    if (strict->header == OTHER)
        return true;
    if (strict->at >= sizeof(strict->word) - 1)
        return refuse(strict, strict->header == LENGTH ? "a Content-Length that is too long"
                                                       : "a Transfer-Encoding that is too long");
    if (strict->header == LENGTH)
        return end_length(strict);
    end_coding(strict);
    return true;
}

static bool
value(struct cn_http_strict *strict, unsigned char c)
{
    if (c == '\r') {
        if (!end_value(strict))
            return false;
        strict->state = VALUE_LF;
        return true;
    }
    if (cn_is_control_char((char)c))
        return refuse_byte(strict, c);
    if (strict->header != OTHER && (strict->at > 0 || (c != ' ' && c != '\t')))
        keep(strict, &(char){(char)c}, 1);
    return true;
}

/* The head is complete: what comes after it? */
static bool
end_head(struct cn_http_strict *strict)
{
    strict->n_heads++;
    if (strict->is_odd || (strict->n_codings && strict->n_lengths))
        return go(strict, UNREAD);
    if (strict->n_codings) {
        strict->length = 0;
        return go(strict, SIZE);
    }
    strict->left = strict->n_lengths ? strict->length : 0;
    strict->n_lengths = 0;
    return go(strict, strict->left ? BODY : BEFORE);
}

/* --- chunks */

static bool
size(struct cn_http_strict *strict, unsigned char c)
{
    int digit = cn_hex_digit((char)c);

    if (digit < 0) {
        if (strict->at == 0)
            return refuse(strict, "a chunk without a size");
        if (c == '\r')
            strict->state = SIZE_LF;
        else if (c == ';' || c == ' ' || c == '\t')
            strict->state = EXTENSION;
        else
            return c == '\n' ? refuse(strict, bare_lf)
                             : refuse(strict, "a chunk size that is not hexadecimal");
        return true;
    }
    if (strict->length >> 58 || strict->at == CN_HTTP_CHUNK_LINE_MAX)
        return refuse(strict, "a chunk size that is too large");
    strict->length = strict->length * 16 + (unsigned)digit;
    strict->at++;
    return true;
}

static bool
extension(struct cn_http_strict *strict, unsigned char c)
{
    if (c == '\r')
        strict->state = SIZE_LF;
    else if (cn_is_control_char((char)c))
        return refuse_byte(strict, c);
    else if (++strict->at >= CN_HTTP_CHUNK_LINE_MAX)
        return refuse(strict, "a line with a chunk's size that is too long");
    return true;
}

static bool
end_size(struct cn_http_strict *strict, unsigned char c)
{
    if (c != '\n')
        return refuse(strict, bare_cr);
    strict->left = strict->length;
    strict->length = 0;
    return go(strict, strict->left ? CHUNK : TRAILER);
}

static bool
end_chunk(struct cn_http_strict *strict, unsigned char c)
{
    strict->state = CHUNK_LF;
    return c == '\r' || refuse(strict, "a chunk that is longer than its size");
}

static bool
trailer(struct cn_http_strict *strict, unsigned char c)
{
    if (c == '\r') {
        strict->state = strict->at == 0 ? TRAILER_LF : TRAILER_TEXT_LF;
        return true;
    }
    if (strict->at == 0 && (c == ':' || c == ' ' || c == '\t'))
        return refuse(strict, "a line of the trailer without a name");
    if (cn_is_control_char((char)c))
        return refuse_byte(strict, c);
    strict->at = 1;
    return true;
}

static bool
end_trailer(struct cn_http_strict *strict, unsigned char c)
{
    strict->n_lengths = strict->n_codings = 0;
    return expect_lf(strict, c, BEFORE);
}

/* Takes one byte. Returns false when it is not allowed. */
static bool
take(struct cn_http_strict *strict, unsigned char c)
{
    switch ((enum state)strict->state) {
    case BEFORE:
        return before(strict, c);
    case BEFORE_LF:
        return expect_lf(strict, c, BEFORE);
    case METHOD:
        return method(strict, c);
    case TARGET:
        return target(strict, c);
    case VERSION:
        return version(strict, c);
    case VERSION_LF:
    case VALUE_LF:
        return expect_lf(strict, c, LINE);
    case LINE:
        return line(strict, c);
    case NAME:
        return name(strict, c);
    case VALUE:
        return value(strict, c);
    case HEAD_LF:
        return c == '\n' ? end_head(strict) : refuse(strict, bare_cr);
    case SIZE:
        return size(strict, c);
    case EXTENSION:
        return extension(strict, c);
    case SIZE_LF:
        return end_size(strict, c);
    case CHUNK_CR:
        return end_chunk(strict, c);
    case CHUNK_LF:
        return expect_lf(strict, c, SIZE);
    case TRAILER:
    case TRAILER_TEXT:
        return trailer(strict, c);
    case TRAILER_TEXT_LF:
        return expect_lf(strict, c, TRAILER);
    case TRAILER_LF:
        return end_trailer(strict, c);
    case BODY:
    case CHUNK:
    case UNREAD:
        break; /* cn_http_strict_feed() skips these */
    }
    return true;
}

/* Keeps a run of a name's bytes, and returns how many there are. */
static size_t
keep_name(struct cn_http_strict *strict, const char *bytes, size_t len)
{
    const char *colon = memchr(bytes, ':', len);
    const size_t n = cn_text_without_control(bytes, colon ? (size_t)(colon - bytes) : len);

    keep(strict, bytes, n);
    return n;
}

/* Takes the bytes that can be taken at once, because each of them leaves the state as it is or, for
 * the version, because all are known. Returns how many these are. Almost all bytes of a head are
 * taken here; the others, and each byte that is refused, go through take(). */
static size_t
take_run(struct cn_http_strict *strict, const char *bytes, size_t len)
{
    static const char version_end[] = "HTTP/1.1\r";
    size_t n = 0;

    switch ((enum state)strict->state) {
    case METHOD:
        while (n < len && cn_is_token_char(bytes[n]))
            n++;
        break;
    case TARGET:
        while (n < len && (unsigned char)bytes[n] > ' ' && bytes[n] != 0x7f)
            n++;
        if (n > 0)
            strict->at = 1;
        break;
    case VERSION:
        n = sizeof(version_end) - 1;
        if (strict->at > 0 || len < n || memcmp(bytes, version_end, n) != 0)
            return 0;
        strict->at = (uint32_t)n;
        strict->state = VERSION_LF;
        break;
    case NAME:
        return keep_name(strict, bytes, len);
    case VALUE:
        return strict->header == OTHER ? cn_text_without_control(bytes, len) : 0;
    default:
        break;
    }
    return n;
}

size_t
cn_http_strict_feed(struct cn_http_strict *strict, const char *bytes, size_t len)
{
    size_t i = 0;

    while (i < len) {
        if (strict->is_off || strict->state == UNREAD)
            return len;
        if (strict->state == BODY || strict->state == CHUNK) {
            size_t n = strict->left < len - i ? (size_t)strict->left : len - i;

            i += n;
            strict->left -= n;
            if (strict->left == 0)
                go(strict, strict->state == BODY ? BEFORE : CHUNK_CR);
        } else if (take(strict, (unsigned char)bytes[i])) {
            i++;
            i += take_run(strict, bytes + i, len - i);
        } else {
            return i;
        }
    }
    return len;
}

bool
cn_http_strict_is_between(const struct cn_http_strict *strict)
{
    return strict->state == BEFORE;
}
