/* ctl/verbs/predict.c - sends one step to a model, and prints the answer.
 *
 * The body is the word behind the model, a file (@FILE), or the standard input (- or no word when
 * the standard input is not a terminal). With --json the answer is an object with the sequence, the
 * step and the body; a body that is not UTF-8 is there in base64.
 *
 * The options become headers of TorchServe's sequence interface: --sequence is
 * ts-request-sequence-id, --start and --end are ts-request-sequence-start and -end, and --key is
 * Idempotency-Key, with which the same step may be sent twice. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/memory/base64.h"
#include "core/memory/mem.h"
#include "core/text/utf8.h"
#include "ctl/json_out.h"
#include "ctl/verbs/verbs.h"

#define BODY_MAX_BYTES (1u << 30)
#define HEADERS_MAX 6

static int
read_all(int fd, const char *name, struct cn_buf *out, struct cn_error *err)
{
    ssize_t n = 1;

    out->max_bytes = BODY_MAX_BYTES;
    while (n > 0 && !out->failed) {
        char *to = cn_buf_reserve(out, 65536);

        n = to ? read(fd, to, 65536) : 0;
        out->len += n > 0 ? (size_t)n : 0;
    }
    if (n < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot read %s", name);
    return out->failed ? cn_fail(err, CN_E_IO, "%s is larger than 1 GiB", name) : 0;
}

static int
read_body(const struct cn_ctl_options *options, struct cn_buf *out, struct cn_error *err)
{
    const char *word = options->n_words > 1 ? options->words[1] : isatty(STDIN_FILENO) ? "" : "-";
    int fd, rc;

    if (strcmp(word, "-") == 0)
        return read_all(STDIN_FILENO, "the standard input", out, err);
    if (word[0] != '@')
        return cn_buf_puts(out, word), 0;
    fd = open(word + 1, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot read %s", word + 1);
    rc = read_all(fd, word + 1, out, err);
    close(fd);
    return rc;
}

/* Adds "name: value" if there is a value. A line end in it would be another header. */
static int
add_header(struct cn_ctl_call *call, char **lines, const char *name, const char *value,
           struct cn_error *err)
{
    struct cn_buf line;

    if (!value)
        return 0;
    if (strpbrk(value, "\r\n"))
        return cn_fail(err, CN_E_CONFIG,
                       "the value of %s has a line end, which a header cannot carry; leave it out",
                       name);
    cn_buf_init(&line, 0);
    cn_buf_printf(&line, "%s: %s", name, value);
    lines[call->n_headers++] = cn_buf_take(&line, &(size_t){0});
    return 0;
}

/* Returns the value of a header of the answer; NULL: there is none.
 *
 * `heads` has the lines of the answer as they came, "Name: value\r\n". Names are compared without
 * regard to case, since a proxy may write them in small letters. */
static json_t *
header_of(const struct cn_buf *heads, const char *name)
{
    const size_t len = strlen(name);
    const char *at = heads->data, *end = at ? at + heads->len : NULL;

    while (at && at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t line = line_end ? (size_t)(line_end - at) : (size_t)(end - at);

        if (line > len && at[len] == ':' && strncasecmp(at, name, len) == 0) {
            const char *from = at + len + 1;

            line -= len + 1;
            for (; line && *from == ' '; from++)
                line--;
            while (line && (from[line - 1] == '\r' || from[line - 1] == ' '))
                line--;
            return json_stringn(from, line);
        }
        at = line_end ? line_end + 1 : end;
    }
    return NULL;
}

static void
put_json(const struct cn_buf *heads, const struct cn_buf *body, struct cn_buf *out)
{
    static const struct {
        const char *key, *header;
    } facts[] = {{"sequence", "continuo-sequence"},
                 {"step", "continuo-sequence-step"},
                 {"requestId", "x-request-id"},
                 {"traceparent", "traceparent"},
                 {"contentType", "content-type"}};
    json_t *value = json_object(), *fact;
    struct cn_buf text;

    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        if ((fact = header_of(heads, facts[i].header)))
            json_object_set_new(value, facts[i].key, fact);
    if (cn_utf8_is_valid(cn_buf_str(body))) {
        json_object_set_new(value, "body", json_stringn(body->data ? body->data : "", body->len));
    } else {
        cn_buf_init(&text, 0);
        cn_base64_put(cn_buf_str(body), &text);
        json_object_set_new(value, "bodyBase64",
                            json_stringn(text.data ? text.data : "", text.len));
        cn_buf_fini(&text);
    }
    cn_ctl_json_print(value, false, out);
}

static int
send_step(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_ctl_call *call,
          struct cn_buf *out, struct cn_error *err)
{
    struct cn_buf answer, heads;
    int rc;

    cn_buf_init(&answer, 0);
    cn_buf_init(&heads, 1u << 20);
    call->answer_headers = &heads;
    rc = cn_ctl_http_call(http, options->verb.inference, call, &answer, err);
    if (!rc && options->json) {
        put_json(&heads, &answer, out);
    } else if (!rc) {
        cn_buf_append_str(out, cn_buf_str(&answer));
        if (isatty(STDOUT_FILENO) && (!answer.len || answer.data[answer.len - 1] != '\n'))
            cn_buf_puts(out, "\n");
    }
    cn_buf_fini(&answer);
    cn_buf_fini(&heads);
    return rc;
}

int
cn_ctl_predict(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
               struct cn_buf *hint, struct cn_error *err)
{
    const struct cn_ctl_verb_options *verb = &options->verb;
    const char *type = verb->type ? verb->type : "application/octet-stream";
    struct cn_ctl_call call = {.method = "POST", .max_bytes = BODY_MAX_BYTES, .patient = true};
    char *lines[HEADERS_MAX];
    struct cn_buf path, body;
    int rc;

    cn_buf_init(&path, 0);
    cn_buf_init(&body, 0);
    cn_ctl_verb_path(&path, "/predictions/", options->words[0]);
    cn_buf_append(&path, "", 1);
    rc = read_body(options, &body, err);
    if (!rc)
        rc = add_header(&call, lines, "Content-Type", type, err);
    if (!rc)
        rc = add_header(&call, lines, "ts-request-sequence-id", verb->sequence, err);
    if (!rc)
        rc =
            add_header(&call, lines, "ts-request-sequence-start", verb->start ? "true" : NULL, err);
    if (!rc)
        rc = add_header(&call, lines, "ts-request-sequence-end", verb->end ? "true" : NULL, err);
    if (!rc)
        rc = add_header(&call, lines, "Idempotency-Key", verb->key, err);
    call.headers = (const char *const *)lines;
    call.body = cn_buf_str(&body);
    call.path = path.data;
    if (!rc)
        rc = send_step(http, options, &call, out, err);
    if (rc == CN_E_NOT_FOUND)
        cn_buf_puts(hint, "continuo-ctl models lists what is registered, and seq ls MODEL its "
                          "sequences.\n");
    for (unsigned i = 0; i < call.n_headers; i++)
        cn_free(lines[i]);
    cn_buf_fini(&path);
    cn_buf_fini(&body);
    return rc;
}
