/* archiver/import/pbtxt.c - reads protocol buffers' text form (config.pbtxt) into a tree. Any
 * thread.
 *
 * The parser works by recursive descent. A field is a name, then a value after a colon, or a
 * message in braces or angle brackets; lists stand in square brackets. It knows no schema, so it
 * keeps what the text says: words, numbers and strings with their line and column, by which
 * import_yaml.c can name the place of an error.
 *
 * A file comes from outside, so depth and number of fields are bounded. Everything is allocated in
 * the caller's arena. */
#include "archiver/import/pbtxt.h"

#include <stdio.h>
#include <string.h>

#include "core/memory/buf.h"

struct parser {
    const char *at, *end, *line_begin;
    unsigned line, depth, n_fields;
    const char *name;
    struct cn_arena *arena;
    struct cn_buf text; /* of the string that is being read */
    struct cn_error *err;
};

static int parse_fields(struct parser *p, char closer, struct cn_pbtxt *message);

static unsigned
column_of(const struct parser *p, const char *at)
{
    return (unsigned)(at - p->line_begin) + 1;
}

static int
fail(const struct parser *p, const char *what)
{
    return cn_fail(p->err, CN_E_INVALID_MODEL, "%s:%u:%u: %s", p->name, p->line,
                   column_of(p, p->at), what);
}

static bool
is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Skips spaces, newlines and comments. Returns the next character, or '\0' at the end. */
static char
skip(struct parser *p)
{
    for (; p->at < p->end; p->at++) {
        if (*p->at == '#')
            while (p->at + 1 < p->end && p->at[1] != '\n')
                p->at++;
        else if (*p->at == '\n') {
            p->line++;
            p->line_begin = p->at + 1;
        } else if (!strchr(" \t\r\f\v", *p->at) || *p->at == '\0')
            return *p->at;
    }
    return '\0';
}

static struct cn_pbtxt *
field_new(struct parser *p, struct cn_str name, enum cn_pbtxt_kind kind)
{
    struct cn_pbtxt *field = cn_arena_alloc(p->arena, sizeof(*field));

    *field = (struct cn_pbtxt){
        .kind = kind, .name = name, .line = p->line, .column = column_of(p, p->at)};
    return field;
}

/* --- strings --- */

/* Reads what stands behind a backslash in a string, and appends the byte that it stands for. */
static int
read_escape(struct parser *p)
{
    static const char from[] = "abfnrtv\\'\"?", to[] = "\a\b\f\n\r\t\v\\'\"?";
    const char *simple;
    unsigned value = 0, n;
    char byte;

    if (p->at == p->end)
        return fail(p, "a string has no closing quote");
    simple = *p->at ? strchr(from, *p->at) : NULL;
    if (simple) {
        p->at++;
        return cn_buf_append(&p->text, &to[simple - from], 1);
    }
    if (*p->at == 'x' || *p->at == 'X') {
        for (p->at++, n = 0; n < 2 && p->at < p->end && cn_hex_digit(*p->at) >= 0; n++)
            value = value * 16 + (unsigned)cn_hex_digit(*p->at++);
    } else {
        for (n = 0; n < 3 && p->at < p->end && *p->at >= '0' && *p->at <= '7'; n++)
            value = value * 8 + (unsigned)(*p->at++ - '0');
    }
    if (n == 0 || value > 255)
        return fail(p, "unknown escape sequence in a string");
    byte = (char)value;
    return cn_buf_append(&p->text, &byte, 1);
}

/* Reads a string. Quoted pieces that follow each other are joined into one string. */
static int
read_string(struct parser *p, struct cn_pbtxt *field)
{
    char quote;
    int rc;

    cn_buf_reset(&p->text);
    while ((quote = skip(p)) == '"' || quote == '\'') {
        for (p->at++; p->at < p->end && *p->at != quote;) {
            const char *begin = p->at;

            if (*p->at == '\n')
                return fail(p, "a string continues on the next line");
            if (*p->at == '\\') {
                p->at++;
                if ((rc = read_escape(p)))
                    return rc;
                continue;
            }
            while (p->at < p->end && *p->at != quote && *p->at != '\n' && *p->at != '\\')
                p->at++;
            cn_buf_append(&p->text, begin, (size_t)(p->at - begin));
        }
        if (p->at == p->end)
            return fail(p, "a string has no closing quote");
        p->at++;
    }
    field->text = cn_arena_str(p->arena, cn_buf_str(&p->text));
    return 0;
}

/* --- numbers and words --- */

static void
skip_digits(struct parser *p)
{
    while (p->at < p->end && is_digit(*p->at))
        p->at++;
}

static int
read_number(struct parser *p, struct cn_pbtxt *field)
{
    const char *begin = p->at, *digits;

    if (*p->at == '-') {
        p->at++;
        skip(p);
        if (p->at < p->end && is_letter(*p->at)) { /* -inf */
            field->kind = CN_PBTXT_WORD;
            while (p->at < p->end && (is_letter(*p->at) || is_digit(*p->at)))
                p->at++;
            field->text = (struct cn_str){begin, (size_t)(p->at - begin)};
            return 0;
        }
    }
    digits = p->at;
    if (p->end - p->at > 1 && p->at[0] == '0' && (p->at[1] == 'x' || p->at[1] == 'X')) {
        for (p->at += 2, digits = p->at; p->at < p->end && cn_hex_digit(*p->at) >= 0;)
            p->at++;
    } else {
        skip_digits(p);
        if (p->at < p->end && *p->at == '.') {
            p->at++;
            skip_digits(p);
        }
        if (p->at > digits && p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
            p->at++;
            if (p->at < p->end && (*p->at == '-' || *p->at == '+'))
                p->at++;
            digits = p->at;
            skip_digits(p);
        }
    }
    field->text = (struct cn_str){begin, (size_t)(p->at - begin)};
    if (p->at == digits || (p->at == digits + 1 && *digits == '.'))
        return fail(p, "expected a number");
    if (p->at < p->end && (*p->at == 'f' || *p->at == 'F'))
        p->at++;
    if (p->at < p->end && (is_letter(*p->at) || is_digit(*p->at) || *p->at == '.'))
        return fail(p, "unexpected characters after a number");
    return 0;
}

static struct cn_str
read_word(struct parser *p)
{
    const char *begin = p->at;

    while (p->at < p->end && (is_letter(*p->at) || is_digit(*p->at)))
        p->at++;
    return (struct cn_str){begin, (size_t)(p->at - begin)};
}

/* --- fields --- */

static int
read_message(struct parser *p, struct cn_pbtxt *field)
{
    char closer = *p->at == '{' ? '}' : '>';
    int rc;

    if (++p->depth > CN_PBTXT_DEPTH_MAX)
        return fail(p, "messages are nested more than 32 deep");
    p->at++;
    rc = parse_fields(p, closer, field);
    p->depth--;
    return rc;
}

/* Reads one value. */
static int
read_value(struct parser *p, struct cn_str name, struct cn_pbtxt **out)
{
    char c = skip(p);
    struct cn_pbtxt *field;

    if (++p->n_fields > CN_PBTXT_FIELDS_MAX)
        return fail(p, "the file has more than 100,000 fields");
    *out = field = field_new(p, name, CN_PBTXT_STRING);
    if (c == '{' || c == '<') {
        field->kind = CN_PBTXT_MESSAGE;
        return read_message(p, field);
    }
    if (c == '"' || c == '\'')
        return read_string(p, field);
    if (is_letter(c)) {
        field->kind = CN_PBTXT_WORD;
        field->text = read_word(p);
        return 0;
    }
    field->kind = CN_PBTXT_NUMBER;
    if (c == '-' || c == '.' || is_digit(c))
        return read_number(p, field);
    return fail(p, "expected a value: a string, a number, a word or a message");
}

/* Reads a list such as [a, b], and makes a field of each element. `*tail` is the pointer that the
 * next field is stored in. */
static int
read_list(struct parser *p, struct cn_str name, struct cn_pbtxt ***tail)
{
    struct cn_pbtxt *field;
    int rc;

    p->at++;
    if (skip(p) == ']') {
        p->at++;
        return 0;
    }
    for (;;) {
        if ((rc = read_value(p, name, &field)))
            return rc;
        **tail = field;
        *tail = &field->next;
        if (skip(p) == ']') {
            p->at++;
            return 0;
        }
        if (skip(p) != ',')
            return fail(p, "expected , or ] after an element of a list");
        p->at++;
    }
}

static int
read_field(struct parser *p, struct cn_pbtxt ***tail)
{
    struct cn_str name;
    struct cn_pbtxt *field;
    char c = skip(p);
    int rc;

    if (!is_letter(c))
        return fail(p, "expected the name of a field");
    name = read_word(p);
    c = skip(p);
    if (c == ':') {
        p->at++;
        c = skip(p);
    } else if (c != '{' && c != '<' && c != '[') {
        return fail(p, "expected : or { after the name of a field");
    }
    if (c == '[')
        return read_list(p, name, tail);
    if ((rc = read_value(p, name, &field)))
        return rc;
    **tail = field;
    *tail = &field->next;
    return 0;
}

/* Reads fields until `closer`, the character that ends the message. '\0' means that the end of the
 * document ends it. */
static int
parse_fields(struct parser *p, char closer, struct cn_pbtxt *message)
{
    struct cn_pbtxt **tail = &message->first;
    int rc;

    for (;;) {
        char c = skip(p);

        if (p->at == p->end)
            return closer ? fail(p, "a message has no closing brace") : 0;
        if (closer && c == closer) {
            p->at++;
            return 0;
        }
        if ((rc = read_field(p, &tail)))
            return rc;
        c = skip(p);
        if (p->at < p->end && (c == ',' || c == ';'))
            p->at++;
    }
}

int
cn_pbtxt_parse(const char *name, struct cn_str bytes, struct cn_arena *arena, struct cn_pbtxt **out,
               struct cn_error *err)
{
    struct parser p = {.at = bytes.ptr,
                       .end = bytes.ptr + bytes.len,
                       .line_begin = bytes.ptr,
                       .line = 1,
                       .name = name,
                       .arena = arena,
                       .err = err};
    int rc;

    if (bytes.len == 0)
        p.at = p.end = p.line_begin = "";
    if (bytes.len > CN_PBTXT_MAX_BYTES)
        return fail(&p, "the file is larger than 4 MiB");
    *out = field_new(&p, CN_STR(""), CN_PBTXT_MESSAGE);
    cn_buf_init(&p.text, 0);
    rc = parse_fields(&p, '\0', *out);
    cn_buf_fini(&p.text);
    return rc;
}

const struct cn_pbtxt *
cn_pbtxt_get(const struct cn_pbtxt *message, const char *name)
{
    const struct cn_pbtxt *found = NULL;

    for (const struct cn_pbtxt *field = message->first; field; field = field->next)
        if (cn_str_eq(field->name, cn_str_from(name)))
            found = field;
    return found;
}
