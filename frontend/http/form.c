/* frontend/http/form.c - splits form bodies into parts. Any thread, no state.
 *
 * docs/decisions/0007 says why this parser is our own. The multipart reader walks once over the
 * complete body. `reader.rest` is the part of the body that has not been read yet, and
 * `reader.delimiter` is CR LF "--" and the boundary. A body looks like this:
 *
 *     --boundary CRLF  headers CRLF  CRLF  data  CRLF --boundary CRLF ... CRLF --boundary--
 *
 * The CR LF before a delimiter belongs to the delimiter and not to the data (RFC 2046, 5.1.1). Two
 * cases need care because of that. The body may begin with the first delimiter, which then has no
 * CR LF before it. And a part with empty data has one CR LF for two purposes, as the end of the
 * empty header line and as the beginning of the delimiter; the reader therefore steps back two
 * bytes before it looks for the delimiter.
 *
 * Clients differ in what they escape and quote. Where the RFCs leave a choice, the parser accepts
 * what browsers and curl send. It refuses a text that two readers could understand differently, for
 * example the parameter `name` twice.
 */
#include "frontend/http/form.h"

#include "frontend/http/http_checks.h"

#define BOUNDARY_MAX 70 /* RFC 2046, 5.1.1 */

int
cn_parts_add(struct cn_parts *parts, struct cn_arena *arena, struct cn_part part,
             struct cn_error *err)
{
    if (parts->n == parts->max)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the request has more than %u parts (max-request-parts)", parts->max);
    if (part.name.len > CN_FORM_NAME_MAX || part.content_type.len > CN_FORM_NAME_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "a part's name or content type is longer than %d bytes", CN_FORM_NAME_MAX);
    if (parts->n == parts->room) {
        uint32_t room = parts->room ? 2 * parts->room : 4;
        struct cn_part *list = cn_arena_try_alloc(arena, room * sizeof(*list));

        if (!list)
            return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for %u parts", room);
        if (parts->n)
            memcpy(list, parts->list, parts->n * sizeof(*list));
        parts->list = list;
        parts->room = room;
    }
    parts->list[parts->n++] = part;
    return 0;
}

/* --- parameters of a header's value */

static struct cn_str
from(struct cn_str text, size_t at)
{
    return (struct cn_str){at ? text.ptr + at : text.ptr, text.len - at};
}

/* Does an escape begin at `at`? Only \" and \\ are escapes, because old browsers send file names
 * with single backslashes (C:\data\x.png). */
static bool
is_escape(struct cn_str text, size_t at)
{
    return text.ptr[at] == '\\' && at + 1 < text.len &&
           (text.ptr[at + 1] == '"' || text.ptr[at + 1] == '\\');
}

/* Takes the quoted text at the start of `rest`; `rest` is then what follows it. The text keeps its
 * escapes, since a header may have thousands of parameters that nobody asks for. Returns false when
 * the closing quote is missing. */
static bool
take_quoted(struct cn_str *rest, struct cn_str *out)
{
    size_t at = 1;

    while (at < rest->len && rest->ptr[at] != '"')
        at += is_escape(*rest, at) ? 2 : 1;
    if (at >= rest->len)
        return false;
    *out = (struct cn_str){rest->ptr + 1, at - 1};
    *rest = from(*rest, at + 1);
    return true;
}

static struct cn_str
without_escapes(struct cn_arena *arena, struct cn_str quoted)
{
    char *text;
    size_t len = 0;

    if (!quoted.len || !memchr(quoted.ptr, '\\', quoted.len))
        return quoted;
    text = cn_arena_alloc(arena, quoted.len);
    for (size_t at = 0; at < quoted.len; at++) {
        at += is_escape(quoted, at);
        text[len++] = quoted.ptr[at];
    }
    return (struct cn_str){text, len};
}

/* Returns the position of the first character of `text` that is in `set`, or the length of
 * `text`. */
static size_t
find_any(struct cn_str text, const char *set)
{
    size_t at = 0;

    while (at < text.len && !(text.ptr[at] && strchr(set, text.ptr[at])))
        at++;
    return at;
}

/* Finds the parameter `name` in a header's value such as `form-data; name="a \"b\""`, and stores it
 * without quotes and escapes. If it had escapes, it is in the arena; otherwise it points into
 * `value`. Returns false when there is no such parameter, or, with CN_E_BAD_REQUEST in `*rc`, when
 * it is there twice or a quote is not closed. */
static bool
header_param(struct cn_arena *arena, struct cn_str value, struct cn_str name, struct cn_str *out,
             int *rc, struct cn_error *err)
{
    struct cn_str rest = from(value, find_any(value, ";")), key, text;
    bool found = false;

    *rc = 0;
    while (rest.len) {
        bool is_quoted = false;
        size_t at;

        rest = from(rest, 1);
        at = find_any(rest, "=;");
        key = cn_str_trim((struct cn_str){rest.ptr, at});
        rest = from(rest, at);
        text = (struct cn_str){NULL, 0};
        if (rest.len && rest.ptr[0] == '=') {
            rest = from(rest, 1);
            while (rest.len && (rest.ptr[0] == ' ' || rest.ptr[0] == '\t'))
                rest = from(rest, 1);
            if (rest.len && rest.ptr[0] == '"') {
                is_quoted = true;
                if (!take_quoted(&rest, &text)) {
                    *rc = cn_fail(err, CN_E_BAD_REQUEST,
                                  "a quoted parameter has no closing quote: %.*s",
                                  rest.len > 60 ? 60 : (int)rest.len, rest.ptr);
                    return false;
                }
                at = find_any(rest, ";");
            } else {
                at = find_any(rest, ";");
                text = cn_str_trim((struct cn_str){rest.ptr, at});
            }
            rest = from(rest, at);
        }
        if (!cn_str_eq_nocase(key, name))
            continue;
        if (found) {
            *rc = cn_fail(err, CN_E_BAD_REQUEST, "a header has the parameter %.*s twice",
                          CN_STR_ARG(name));
            return false;
        }
        found = true;
        *out = is_quoted ? without_escapes(arena, text) : text;
    }
    return found;
}

static struct cn_str
without_params(struct cn_str value)
{
    return cn_str_trim((struct cn_str){value.ptr, find_any(value, ";")});
}

/* --- multipart */

/* How far the reader has come in the body. */
struct reader {
    struct cn_arena *arena;
    struct cn_str rest;
    struct cn_str delimiter; /* CR LF "--" boundary */
    struct cn_error *err;
};

/* What the headers of one part say about it. */
struct part_head {
    struct cn_str name, content_type;
    bool has_name, is_file;
};

static int
read_boundary(struct reader *reader, struct cn_str content_type)
{
    static const char allowed[] = "'()+_,-./:=? "; /* besides letters and digits; RFC 2046, 5.1.1 */
    struct cn_str boundary;
    char *text;
    int rc;

    if (!header_param(reader->arena, content_type, CN_STR("boundary"), &boundary, &rc, reader->err))
        return rc ? rc
                  : cn_fail(reader->err, CN_E_BAD_REQUEST,
                            "multipart/form-data needs a boundary in Content-Type");
    if (boundary.len == 0 || boundary.len > BOUNDARY_MAX)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "the multipart boundary has %zu bytes; it must have 1 to %d", boundary.len,
                       BOUNDARY_MAX);
    for (size_t i = 0; i < boundary.len; i++) {
        char c = boundary.ptr[i], lower = (char)(c | 0x20);

        if (!(c >= '0' && c <= '9') && !(lower >= 'a' && lower <= 'z') &&
            !memchr(allowed, c, sizeof(allowed) - 1))
            return cn_fail(reader->err, CN_E_BAD_REQUEST,
                           "the multipart boundary has a character that RFC 2046 forbids");
    }
    text = cn_arena_alloc(reader->arena, boundary.len + 4);
    memcpy(text, "\r\n--", 4);
    memcpy(text + 4, boundary.ptr, boundary.len);
    reader->delimiter = (struct cn_str){text, boundary.len + 4};
    return 0;
}

/* Reads the rest of a delimiter's line. Sets `last` when this is the closing delimiter. */
static int
end_delimiter(struct reader *reader, bool *last)
{
    struct cn_str *rest = &reader->rest;

    *last = cn_str_begins(*rest, CN_STR("--"));
    if (*last)
        return 0; /* the rest of the line means nothing */
    while (rest->len && (rest->ptr[0] == ' ' || rest->ptr[0] == '\t'))
        *rest = from(*rest, 1);
    if (!cn_str_begins(*rest, CN_STR("\r\n")))
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "a multipart boundary is followed by other text on its line");
    *rest = from(*rest, 2);
    return 0;
}

static int
read_disposition(struct reader *reader, struct cn_str value, struct part_head *head)
{
    struct cn_str file;
    int rc;

    if (!cn_str_eq_nocase(without_params(value), CN_STR("form-data")))
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "a part's Content-Disposition is not form-data");
    if (head->has_name)
        return cn_fail(reader->err, CN_E_BAD_REQUEST, "a part has two Content-Disposition headers");
    head->has_name =
        header_param(reader->arena, value, CN_STR("name"), &head->name, &rc, reader->err);
    if (rc)
        return rc;
    head->is_file = header_param(reader->arena, value, CN_STR("filename"), &file, &rc, reader->err);
    if (!rc && !head->is_file)
        head->is_file =
            header_param(reader->arena, value, CN_STR("filename*"), &file, &rc, reader->err);
    return rc;
}

static int
read_header(struct reader *reader, struct cn_str line, struct part_head *head)
{
    size_t colon = find_any(line, ":");
    struct cn_str name = {line.ptr, colon}, value;

    if (colon == 0 || colon == line.len)
        return cn_fail(reader->err, CN_E_BAD_REQUEST, "a part has a header line without a name");
    value = cn_str_trim(from(line, colon + 1));
    if (!cn_http_header_is_valid(name, value))
        return cn_fail(reader->err, CN_E_BAD_REQUEST, "a part has a malformed header line");
    if (cn_str_eq_nocase(name, CN_STR("content-disposition")))
        return read_disposition(reader, value, head);
    if (cn_str_eq_nocase(name, CN_STR("content-type")))
        head->content_type = without_params(value);
    if (cn_str_eq_nocase(name, CN_STR("content-transfer-encoding")) &&
        !cn_str_eq_nocase(value, CN_STR("binary")) && !cn_str_eq_nocase(value, CN_STR("8bit")) &&
        !cn_str_eq_nocase(value, CN_STR("7bit")))
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "a part is encoded as %.*s; send its bytes as they are (RFC 7578, 4.7)",
                       value.len > 60 ? 60 : (int)value.len, value.ptr);
    return 0;
}

/* Reads the headers of a part, including the empty line that ends them. */
static int
read_headers(struct reader *reader, struct part_head *head)
{
    struct cn_str all = reader->rest, *rest = &reader->rest;
    const char *end;
    int rc;

    for (;;) {
        size_t len, seen = all.len - rest->len;
        size_t room = CN_FORM_HEADERS_MAX - seen;

        end = memmem(rest->ptr, rest->len < room ? rest->len : room, "\r\n", 2);
        if (!end)
            return cn_fail(reader->err, CN_E_BAD_REQUEST,
                           "a part's headers are incomplete or longer than %d bytes",
                           CN_FORM_HEADERS_MAX);
        len = (size_t)(end - rest->ptr);
        if (len > 0) {
            rc = read_header(reader, (struct cn_str){rest->ptr, len}, head);
            if (rc)
                return rc;
        }
        *rest = from(*rest, len + 2);
        if (len == 0)
            break;
    }
    if (!head->has_name || head->name.len == 0)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "a part has no name: send Content-Disposition: form-data; name=\"...\"");
    return 0;
}

/* Only files have a content type, as in TorchServe. */
static struct cn_str
type_of(const struct part_head *head)
{
    if (!head->is_file)
        return (struct cn_str){NULL, 0};
    return head->content_type.len ? head->content_type : CN_STR("application/octet-stream");
}

/* Skips to after the next delimiter; `skipped` is what lies before it. */
static int
skip_to_delimiter(struct reader *reader, struct cn_str *skipped)
{
    const char *at = reader->rest.len ? memmem(reader->rest.ptr, reader->rest.len,
                                               reader->delimiter.ptr, reader->delimiter.len)
                                      : NULL;

    if (!at)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "the multipart body ends before its last boundary");
    *skipped = (struct cn_str){reader->rest.ptr, (size_t)(at - reader->rest.ptr)};
    reader->rest = from(reader->rest, skipped->len + reader->delimiter.len);
    return 0;
}

int
cn_form_multipart(struct cn_arena *arena, struct cn_str content_type, struct cn_str body,
                  struct cn_parts *parts, struct cn_error *err)
{
    struct reader reader = {.arena = arena, .rest = body, .err = err};
    int rc = read_boundary(&reader, content_type);
    struct cn_str skipped;
    bool last = false;

    if (rc)
        return rc;
    /* The first delimiter may be at the very beginning of the body. Otherwise the text before it
     * means nothing. */
    if (cn_str_begins(body, from(reader.delimiter, 2)))
        reader.rest = from(body, reader.delimiter.len - 2);
    else if ((rc = skip_to_delimiter(&reader, &skipped)))
        return rc;
    while (!rc && !(rc = end_delimiter(&reader, &last)) && !last) {
        struct part_head head = {0};

        rc = read_headers(&reader, &head);
        if (!rc) {
            /* With empty data, the CR LF that ended the headers is also the beginning of the
             * delimiter. */
            reader.rest = (struct cn_str){reader.rest.ptr - 2, reader.rest.len + 2};
            rc = skip_to_delimiter(&reader, &skipped);
        }
        if (!rc)
            rc = cn_parts_add(parts, arena,
                              (struct cn_part){head.name, type_of(&head),
                                               skipped.len ? from(skipped, 2) : skipped},
                              err);
    }
    return rc;
}

/* --- x-www-form-urlencoded */

/* Decodes `text` into the buffer at *at and moves *at behind the result. The result may have any
 * byte, also NUL. */
static bool
decode(struct cn_str text, char **at, struct cn_str *out)
{
    char *begin = *at, *end = begin;

    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] != '%') {
            *end++ = (char)(text.ptr[i] == '+' ? ' ' : text.ptr[i]);
            continue;
        }
        if (text.len - i < 3 || cn_hex_digit(text.ptr[i + 1]) < 0 ||
            cn_hex_digit(text.ptr[i + 2]) < 0)
            return false;
        *end++ = (char)(cn_hex_digit(text.ptr[i + 1]) * 16 + cn_hex_digit(text.ptr[i + 2]));
        i += 2;
    }
    *at = end;
    *out = (struct cn_str){begin, (size_t)(end - begin)};
    return true;
}

int
cn_form_urlencoded(struct cn_arena *arena, struct cn_str body, struct cn_parts *parts,
                   struct cn_error *err)
{
    char *at = cn_arena_try_alloc(arena, body.len + 1); /* decoding makes nothing longer */
    struct cn_str rest = body;
    int rc = 0;

    if (!at)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a form of %zu bytes",
                       body.len);
    while (rest.len && !rc) {
        const char *end = memchr(rest.ptr, '&', rest.len), *equals;
        struct cn_str word = {rest.ptr, end ? (size_t)(end - rest.ptr) : rest.len};
        struct cn_part part = {0};

        rest = from(rest, word.len + (end ? 1 : 0));
        equals = word.len ? memchr(word.ptr, '=', word.len) : NULL;
        if (!equals) /* a name without "=" has an empty value */
            equals = word.ptr + word.len;
        if (equals == word.ptr)
            continue;
        if (!decode((struct cn_str){word.ptr, (size_t)(equals - word.ptr)}, &at, &part.name) ||
            !decode(from(word, (size_t)(equals - word.ptr) + (equals < word.ptr + word.len)), &at,
                    &part.data))
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "the form has an escape that is not %% and two hex digits");
        rc = cn_parts_add(parts, arena, part, err);
    }
    return rc;
}
