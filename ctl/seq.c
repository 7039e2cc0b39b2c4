/* ctl/seq.c - what the commands of continuo-ctl seq do: list, show, export, import, fork and
 * delete sequences.
 *
 * Each command is one or a few calls of the management API. With --json its result is the server's
 * JSON; otherwise it is a sentence or a table. Advice that is not part of the result goes to
 * `hint`, which is printed to standard error.
 *
 * An exported sequence is a file that may be the only copy of a user's state, since people export a
 * sequence and then delete it. So a regular file is written under another name, brought to the disk
 * and renamed; a failure leaves what was there before. */
#include "ctl/seq.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "core/system/write_file.h"
#include "ctl/json_out.h"

#define LIMIT_DEFAULT 1000
#define SORTED_ROOM 4000            /* sequences that --sort may hold besides those it shows */
#define FILE_MAX_BYTES (1ull << 30) /* the largest value that --max-envelope-size can have */
#define KEEP_BYTES (64u << 20)      /* the limit for all other answers */

struct seq {
    struct cn_ctl_http *http;
    const struct cn_ctl_options *options;
    const char *model, *id; /* `id` is NULL for a list */
    struct cn_buf path, answer;
    json_t *value; /* the answer, if it is JSON */
    struct cn_buf *out, *hint;
    struct cn_error *err;
};

/* Writes the path of the sequences, or of one sequence, to `seq->path`:
 * "/models/m/1.0/sequences/id". A query may be added to it. */
static void
set_path(struct seq *seq)
{
    const char *slash = strchr(seq->model, '/');
    char *name = cn_strndup(seq->model, slash ? (size_t)(slash - seq->model) : strlen(seq->model));

    cn_buf_reset(&seq->path);
    cn_buf_puts(&seq->path, "/models/");
    cn_ctl_put_escaped(&seq->path, name);
    cn_free(name);
    if (slash) {
        cn_buf_puts(&seq->path, "/");
        cn_ctl_put_escaped(&seq->path, slash + 1);
    }
    cn_buf_puts(&seq->path, "/sequences");
    if (seq->id) {
        cn_buf_puts(&seq->path, "/");
        cn_ctl_put_escaped(&seq->path, seq->id);
    }
}

static void
add_query(struct seq *seq, const char *name, const char *value)
{
    cn_buf_printf(&seq->path, "%c%s=", memchr(seq->path.data, '?', seq->path.len) ? '&' : '?',
                  name);
    cn_ctl_put_escaped(&seq->path, value);
}

static void
add_number(struct seq *seq, const char *name, unsigned long long value)
{
    char text[24];

    snprintf(text, sizeof text, "%llu", value);
    add_query(seq, name, text);
}

/* Makes the request and reads the answer's bytes into `seq->answer`. */
static int
call(struct seq *seq, const char *method, struct cn_str body)
{
    struct cn_ctl_call request = {.method = method, .body = body, .max_bytes = FILE_MAX_BYTES};

    cn_buf_append(&seq->path, "", 1);
    request.path = seq->path.data;
    return cn_ctl_http_call(seq->http, seq->options->management, &request, &seq->answer, seq->err);
}

/* Makes the request and reads the answer into `seq->value`, which must be a JSON object. */
static int
call_json(struct seq *seq, const char *method, struct cn_str body)
{
    int rc = call(seq, method, body);

    if (rc)
        return rc;
    json_decref(seq->value);
    seq->value = json_loadb(seq->answer.data ? seq->answer.data : "", seq->answer.len, 0, NULL);
    if (!json_is_object(seq->value))
        return cn_fail(seq->err, CN_E_PROTOCOL,
                       "the answer from %s is not that of a Continuo management address; give the "
                       "management address with --server",
                       seq->options->management);
    return 0;
}

/* Writes the answer as JSON, or as a sentence for people. */
static void
put_done(struct seq *seq, const char *sentence)
{
    json_t *step = json_object_get(seq->value, "step");

    if (seq->options->json) {
        cn_ctl_json_print(json_incref(seq->value), false, seq->out);
        return;
    }
    cn_buf_printf(seq->out, "%s", sentence);
    if (json_is_integer(step))
        cn_buf_printf(seq->out, ", at step %lld", (long long)json_integer_value(step));
    cn_buf_puts(seq->out, "\n");
}

/* --- ls, show */

/* By which member sequences are sorted; NULL: in the order of the server, which is that of ids in
 * the store and arbitrary otherwise. */
static const char *sort_key;

static int
compare(const void *a, const void *b)
{
    const json_t *of_a = json_object_get(*(json_t *const *)a, sort_key);
    const json_t *of_b = json_object_get(*(json_t *const *)b, sort_key);
    const json_int_t number_a = json_integer_value(of_a), number_b = json_integer_value(of_b);
    const char *text_a = json_string_value(of_a), *text_b = json_string_value(of_b);

    if (text_a || text_b)
        return strcmp(text_a ? text_a : "", text_b ? text_b : "");
    return number_a < number_b ? 1 : number_a > number_b ? -1 : 0;
}

/* Puts the sequences into the order that --sort asks for, and keeps the first `limit`. */
static json_t *
sorted(json_t *all, const char *word, size_t limit)
{
    static const char *const keys[][2] = {{"id", "sequence"},
                                          {"idle", "idleMSec"},
                                          {"step", "step"},
                                          {"size", "stateBytes"},
                                          {"backlog", "backlog"}};
    const size_t n = json_array_size(all);
    json_t **items = cn_alloc(sizeof(*items) * (n + 1)), *out = json_array();

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(word, keys[i][0]) == 0)
            sort_key = keys[i][1];
    for (size_t i = 0; i < n; i++)
        items[i] = json_array_get(all, i);
    qsort(items, n, sizeof(*items), compare);
    for (size_t i = 0; i < n && i < limit; i++)
        json_array_append(out, items[i]);
    cn_free(items);
    json_decref(all);
    return out;
}

/* Asks for one page, which begins at `token`, and sets `token` to that of the next one, or to "".
 * Without a limit, the server chooses the size of the page. */
static int
read_page(struct seq *seq, char *token, size_t room)
{
    const struct cn_ctl_seq_options *wish = &seq->options->seq;
    json_t *next;
    int rc;

    set_path(seq);
    add_query(seq, "state", wish->state ? wish->state : "live");
    if (wish->prefix)
        add_query(seq, "prefix", wish->prefix);
    if (wish->idle_s)
        add_number(seq, "min_idle_ms", wish->idle_s * 1000ull);
    if (token[0])
        add_query(seq, "next_page_token", token);
    rc = call_json(seq, "GET", (struct cn_str){NULL, 0});
    if (rc)
        return rc;
    next = json_object_get(seq->value, "nextPageToken");
    snprintf(token, room, "%s", json_is_string(next) ? json_string_value(next) : "");
    return 0;
}

static int
list(struct seq *seq)
{
    const struct cn_ctl_seq_options *wish = &seq->options->seq;
    const char *sort = seq->options->verb.sort;
    const size_t limit = wish->limit ? wish->limit : LIMIT_DEFAULT;
    json_t *all = json_array();
    char token[1024] = "";
    bool more = false;
    int rc;

    /* The largest may be on the last page, so --sort reads all pages. What cannot be among the
     * first is forgotten on the way, because a server may have millions of sequences. */
    do {
        rc = read_page(seq, token, sizeof token);
        if (rc)
            break;
        json_array_extend(all, json_object_get(seq->value, "sequences"));
        more = more || json_array_size(all) > limit;
        if (sort && (!token[0] || json_array_size(all) > 2 * limit + SORTED_ROOM))
            all = sorted(all, sort, limit);
    } while (token[0] && (sort || json_array_size(all) < limit));
    if (rc == 0 && (token[0] || more))
        cn_buf_printf(seq->hint, "Only the first %zu are shown; there may be more: raise --limit\n",
                      limit);
    while (json_array_size(all) > limit)
        json_array_remove(all, json_array_size(all) - 1);
    if (rc == 0 && seq->options->json)
        cn_ctl_json_print(json_incref(all), false, seq->out);
    else if (rc == 0)
        cn_ctl_seq_list(all, seq->out);
    if (rc == 0 && json_array_size(all) == 0 && !wish->state)
        cn_buf_puts(seq->hint, "No live sequences. --state open also lists sequences that are only "
                               "on disk, --state closed those that ended.\n");
    json_decref(all);
    return rc;
}

static int
show(struct seq *seq)
{
    int rc;

    if (seq->options->seq.show_state)
        add_query(seq, "show_state", "true");
    rc = call_json(seq, "GET", (struct cn_str){NULL, 0});
    if (rc)
        return rc;
    if (seq->options->json)
        cn_ctl_json_print(json_incref(seq->value), false, seq->out);
    else
        cn_ctl_seq_show(seq->value, seq->out);
    return 0;
}

/* --- export, import */

/* Writes into a pipe, a device or the target of a link. These are not replaced, as renaming would
 * do. */
static int
save_into(const char *name, struct cn_str bytes)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    return fd < 0 ? errno : cn_write_out(fd, bytes.ptr, bytes.len);
}

/* Saves a file atomically and waits until it is on the disk: somebody who saved a sequence may
 * delete it on the server next. */
static int
save(const char *name, struct cn_str bytes, struct cn_error *err)
{
    struct cn_buf beside;
    struct stat there;
    int failed;

    cn_buf_init(&beside, 0);
    cn_buf_printf(&beside, "%s.part%d%c", name, (int)getpid(), '\0');
    if (lstat(name, &there) < 0 || S_ISREG(there.st_mode))
        failed = cn_write_file_atomically(name, beside.data, 0600, bytes.ptr, bytes.len);
    else
        failed = save_into(name, bytes);
    cn_buf_fini(&beside);
    return failed ? cn_fail_sys(err, CN_E_IO, failed, "cannot write %s", name) : 0;
}

/* Makes a file name from the sequence's id. */
static char *
own_name(const char *id)
{
    struct cn_buf name;

    cn_buf_init(&name, 0);
    cn_buf_printf(&name, "%.100s.cnseq", id);
    for (size_t i = 0; i < name.len; i++)
        if (name.data[i] == '/' || (unsigned char)name.data[i] < 0x20 ||
            (i == 0 && strchr(".-", name.data[i])))
            name.data[i] = '_';
    return cn_buf_take(&name, NULL);
}

static int export(struct seq *seq)
{
    const char *given = seq->options->n_words > 3 ? seq->options->words[3] : NULL;
    char *name;
    int rc;

    add_query(seq, "export", "true");
    if ((rc = call(seq, "GET", (struct cn_str){NULL, 0})) != 0)
        return rc;
    if (given && strcmp(given, "-") == 0) {
        cn_buf_append_str(seq->out, cn_buf_str(&seq->answer));
        return 0;
    }
    name = given ? cn_strdup(given) : own_name(seq->id);
    rc = save(name, cn_buf_str(&seq->answer), seq->err);
    if (rc == 0 && seq->options->json)
        cn_ctl_json_print(
            json_pack("{s:s, s:I}", "file", name, "bytes", (json_int_t)seq->answer.len), false,
            seq->out);
    else if (rc == 0)
        cn_buf_printf(seq->out, "saved to %s (%zu bytes)\n", name, seq->answer.len);
    cn_free(name);
    return rc;
}

static int
read_file(const char *name, struct cn_buf *out, struct cn_error *err)
{
    bool is_stdin = strcmp(name, "-") == 0;
    int fd = is_stdin ? dup(STDIN_FILENO) : open(name, O_RDONLY | O_CLOEXEC);
    ssize_t n = 1;

    if (fd < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot read %s", name);
    out->max_bytes = FILE_MAX_BYTES;
    while (n > 0 && !out->failed) {
        char *to = cn_buf_reserve(out, 65536);

        n = to ? read(fd, to, 65536) : 0;
        out->len += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    if (n < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot read %s", name);
    if (out->failed)
        return cn_fail(err, CN_E_IO, "%s is larger than 1 GiB; no exported sequence is that large",
                       name);
    return 0;
}

static int
import(struct seq *seq)
{
    struct cn_buf file;
    int rc;

    cn_buf_init(&file, 0);
    rc = read_file(seq->options->words[3], &file, seq->err);
    if (seq->options->seq.replace)
        add_query(seq, "replace", "true");
    if (seq->options->seq.any_model)
        add_query(seq, "any_model", "true");
    if (rc == 0)
        rc = call_json(seq, "PUT", cn_buf_str(&file));
    cn_buf_fini(&file);
    if (rc == 0)
        put_done(seq, "imported");
    else if (rc == CN_E_CONFLICT)
        cn_buf_puts(seq->hint, "--replace closes the sequence that is open under this id; "
                               "--any-model accepts a file of another model.\n");
    return rc;
}

/* --- fork, rm */

static int
fork_to(struct seq *seq)
{
    int rc;

    add_query(seq, "fork_to", seq->options->words[3]);
    rc = call_json(seq, "POST", (struct cn_str){NULL, 0});
    if (rc == 0)
        put_done(seq, "copied");
    else if (rc == CN_E_CONFLICT)
        cn_buf_puts(seq->hint, "Copy to another id, or delete that sequence first: seq rm\n");
    return rc;
}

static int
rm(struct seq *seq)
{
    int rc = call_json(seq, "DELETE", (struct cn_str){NULL, 0});

    if (rc == 0)
        put_done(seq, json_is_true(json_object_get(seq->value, "wasLive"))
                          ? "deleted"
                          : "deleted; it was not live");
    return rc;
}

int
cn_ctl_seq(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
           struct cn_buf *hint, struct cn_error *err)
{
    static const struct {
        const char *name;
        int (*run)(struct seq *seq);
    } verbs[] = {{"ls", list},       {"show", show},    {"export", export},
                 {"import", import}, {"fork", fork_to}, {"rm", rm}};
    struct seq seq = {.http = http,
                      .options = options,
                      .model = options->words[1],
                      .id = options->n_words > 2 ? options->words[2] : NULL,
                      .out = out,
                      .hint = hint,
                      .err = err};
    int rc = CN_E_CONFIG;

    cn_buf_init(&seq.path, 0);
    cn_buf_init(&seq.answer, 0);
    set_path(&seq);
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(verbs[i].name, options->words[0]) == 0)
            rc = verbs[i].run(&seq);
    json_decref(seq.value);
    cn_buf_fini(&seq.path);
    cn_buf_fini(&seq.answer);
    return rc;
}
