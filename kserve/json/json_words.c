/* kserve/json/json_words.c - scans JSON for what jansson cannot read, and copies it only if there
 * is any.
 *
 * Example: [1, NaN, 18446744073709551615] is handed to jansson as [1, "\u0001NaN",
 * "\u000118446744073709551615"]. The mark \u0001 tells these strings from the client's own; if a
 * client's string begins with the mark, it gets a second one. jansson then does all the parsing,
 * and the functions below read the marked strings as numbers. cn_v2_json_write() turns them back.
 *
 * The scanner does not check the grammar; it only has to find strings, words and brackets. jansson
 * refuses what is malformed.
 *
 * jansson makes up to seventy bytes of one: {}, is three bytes, and an empty object takes more than
 * two hundred. So the scanner also adds up what the values will take, and a document that would
 * take too much is refused before jansson sees it.
 */
#include "kserve/json/json_words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_OBJECT 8 /* members; the search in a larger one uses its hash table */
#define MARK '\x01'
#define MARK_TEXT "\\u0001" /* the only way to write the mark in JSON */
#define MARK_LEN (sizeof(MARK_TEXT) - 1)
/* What jansson allocates for a value, with its place in the list or object around it. */
#define OBJECT_BYTES 224
#define LIST_BYTES 136
#define STRING_BYTES 88 /* and the text; a key takes about as much */
#define NUMBER_BYTES 40

struct scan {
    const char *at, *end;
    const char *copied; /* `out` has the text up to here; NULL: nothing was copied yet */
    struct cn_buf out;
    int depth;
    uint64_t bytes; /* the memory that the values so far will take */
};

/* Copies the text that was not copied yet, up to `to`. */
static void
copy_to(struct scan *scan, const char *to, const char *start)
{
    const char *copied = scan->copied ? scan->copied : start;

    cn_buf_append(&scan->out, copied, (size_t)(to - copied));
    scan->copied = to;
}

/* Is the string that ends here a key of an object? Keys are never marked. */
static bool
is_key(const struct scan *scan)
{
    const char *at = scan->at;

    while (at < scan->end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at < scan->end && *at == ':';
}

/* Skips a string. A value that begins with the mark gets a second mark. */
static void
look_at_string(struct scan *scan, const char *start)
{
    const char *from = ++scan->at;

    while (scan->at < scan->end && *scan->at != '"')
        scan->at += *scan->at == '\\' ? 2 : 1;
    scan->at++;
    if (scan->at > scan->end)
        scan->at = scan->end;
    scan->bytes += STRING_BYTES + (uint64_t)(scan->at - from);
    if ((size_t)(scan->end - from) >= MARK_LEN && memcmp(from, MARK_TEXT, MARK_LEN) == 0 &&
        !is_key(scan)) {
        copy_to(scan, from, start);
        cn_buf_puts(&scan->out, MARK_TEXT);
    }
}

/* Replaces the word from `from` to the present position by a marked string. */
static void
replace(struct scan *scan, const char *from, const char *start)
{
    copy_to(scan, from, start);
    cn_buf_puts(&scan->out, "\"" MARK_TEXT);
    cn_buf_append(&scan->out, from, (size_t)(scan->at - from));
    cn_buf_puts(&scan->out, "\"");
    scan->copied = scan->at;
}

/* Skips `word` if it stands here. */
static bool
take_word(struct scan *scan, const char *word)
{
    size_t len = strlen(word);

    if ((size_t)(scan->end - scan->at) < len || memcmp(scan->at, word, len) != 0)
        return false;
    scan->at += len;
    return true;
}

/* Looks at a number or a bare word: replaces NaN, the infinities, and integers that jansson
 * refuses. */
static void
look_at_word(struct scan *scan, const char *start)
{
    const char *from = scan->at;
    size_t digits = 0;

    if (*scan->at == '-')
        scan->at++;
    while (scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9')
        scan->at++, digits++;
    if (digits == 0) {
        if (take_word(scan, "Infinity") || (*from != '-' && take_word(scan, "NaN")))
            replace(scan, from, start);
        else if (scan->at == from)
            scan->at++;
        return;
    }
    scan->bytes += NUMBER_BYTES;
    if (scan->at < scan->end && (*scan->at == '.' || *scan->at == 'e' || *scan->at == 'E')) {
        while (scan->at < scan->end && strchr("0123456789+-.eE", *scan->at) && *scan->at)
            scan->at++;
        return;
    }
    /* Larger than jansson accepts, but perhaps not larger than UINT64_MAX. */
    if (*from != '-' && *from != '0' &&
        (digits == 20 || (digits == 19 && memcmp(from, "9223372036854775807", 19) > 0)))
        replace(scan, from, start);
}

static int
look_over(struct scan *scan, struct cn_error *err)
{
    const char *start = scan->at;

    while (scan->at < scan->end) {
        switch (*scan->at) {
        case '"':
            look_at_string(scan, start);
            break;
        case '[':
        case '{':
            scan->bytes += *scan->at++ == '{' ? OBJECT_BYTES : LIST_BYTES;
            if (++scan->depth > CN_V2_DEPTH_MAX)
                return cn_fail(err, CN_E_BAD_REQUEST,
                               "JSON nesting depth exceeds maximum allowed limit (%d)",
                               CN_V2_DEPTH_MAX);
            break;
        case ']':
        case '}':
            scan->at++;
            scan->depth--;
            break;
        case ' ':
        case ',':
        case ':':
        case '\n':
        case '\r':
        case '\t':
            scan->at++;
            break;
        default:
            look_at_word(scan, start);
        }
        if (scan->bytes > CN_V2_DOCUMENT_MAX)
            return cn_fail(
                err, CN_E_BAD_REQUEST,
                "the JSON of %zu bytes would take more than %u MiB of memory; send fewer "
                "values, or send them as binary data",
                (size_t)(scan->end - start), CN_V2_DOCUMENT_MAX >> 20);
    }
    return 0;
}

int
cn_v2_json_load(struct cn_str text, json_t **out, struct cn_error *err)
{
    struct scan scan = {.at = text.ptr, .end = text.ptr + text.len};
    json_error_t why;
    int rc;

    *out = NULL;
    cn_buf_init(&scan.out, 0);
    rc = text.len ? look_over(&scan, err) : 0;
    if (!rc && scan.copied) {
        cn_buf_append(&scan.out, scan.copied, (size_t)(scan.end - scan.copied));
        text = cn_buf_str(&scan.out);
        if (scan.out.failed)
            rc = cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory to read JSON");
    }
    if (!rc) {
        *out = json_loadb(text.ptr ? text.ptr : "", text.len,
                          JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why);
        if (!*out)
            rc = cn_fail(err, CN_E_INTERNAL, "failed to parse the request JSON buffer: %s at %d",
                         why.text, why.position);
    }
    cn_buf_fini(&scan.out);
    return rc;
}

/* Returns the text of a marked string, or NULL. */
static const char *
marked(const json_t *value)
{
    const char *text = json_string_value(value);

    return text && text[0] == MARK && text[1] != MARK ? text + 1 : NULL;
}

json_t *
cn_v2_json_get(const json_t *object, const char *key)
{
    json_t *map = (json_t *)object; /* jansson's iterators take no const, but change nothing */
    void *at;

    if (json_object_size(object) > SMALL_OBJECT)
        return json_object_get(object, key);
    for (at = json_object_iter(map); at; at = json_object_iter_next(map, at)) {
        const char *has = json_object_iter_key(at);

        if (*has == *key && strcmp(has, key) == 0)
            return json_object_iter_value(at);
    }
    return NULL;
}

bool
cn_v2_json_is_string(const json_t *value)
{
    return json_is_string(value) && !marked(value);
}

struct cn_str
cn_v2_json_text(const json_t *value)
{
    const char *text = json_string_value(value);
    const size_t marks = text && *text == MARK;

    return (struct cn_str){text + marks, json_string_length(value) - marks};
}

bool
cn_v2_json_uint(const json_t *value, uint64_t *out)
{
    const char *text = marked(value);
    unsigned __int128 wide = 0;

    if (json_is_integer(value)) {
        *out = (uint64_t)json_integer_value(value);
        return json_integer_value(value) >= 0;
    }
    if (!text)
        return false;
    for (; *text >= '0' && *text <= '9'; text++)
        wide = wide * 10 + (unsigned)(*text - '0');
    *out = (uint64_t)wide;
    return *text == '\0' && wide > 0 && wide <= UINT64_MAX;
}

bool
cn_v2_json_number(const json_t *value, double *out)
{
    const char *text = marked(value);

    if (json_is_number(value))
        *out = json_number_value(value);
    else if (text)
        *out = *text == 'N' ? (double)NAN : strtod(text, NULL);
    return json_is_number(value) || text;
}

/* Returns the position after the string that begins at `at`. */
static const char *
end_of_string(const char *at)
{
    for (at++; *at != '"'; at++)
        at += *at == '\\';
    return at + 1;
}

bool
cn_v2_json_write(const json_t *value, struct cn_buf *out)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *at = text, *end;

    for (; at && *at; at = end) {
        if (*at != '"') {
            end = at + strcspn(at, "\"");
            cn_buf_append(out, at, (size_t)(end - at));
            continue;
        }
        end = end_of_string(at);
        if (*end == ':' ||
            strncmp(at + 1, MARK_TEXT, MARK_LEN) != 0) { /* a key, or a text without mark */
            cn_buf_append(out, at, (size_t)(end - at));
        } else if (strncmp(at + 1 + MARK_LEN, MARK_TEXT, MARK_LEN) == 0) {
            cn_buf_puts(out, "\"");
            cn_buf_append(out, at + 1 + MARK_LEN, (size_t)(end - at) - 1 - MARK_LEN);
        } else {
            cn_buf_append(out, at + 1 + MARK_LEN, (size_t)(end - at) - 2 - MARK_LEN);
        }
    }
    free(text);
    return text && !out->failed;
}
