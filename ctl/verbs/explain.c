/* ctl/verbs/explain.c - explains an error word without a server: what happened, why, what to do.
 *
 * The text is the word's section of docs/troubleshooting.md, which is part of the program. So it
 * fits the version, and it is there on machines without documentation. tests/lint/errors_page.py
 * checks that each word has a section. */
#include <string.h>

#include "core/text/suggest.h"
#include "ctl/columns.h"
#include "ctl/json_out.h"
#include "ctl/verbs/verbs.h"

#define WIDTH 80

extern const unsigned char cn_errors_page[];
extern const size_t cn_errors_page_bytes;

static const char *const words[] = {
#define CN_ERROR(code, word, http, grpc, type) word,
#include "core/errors/errors.def"
#undef CN_ERROR
};
static const char *const types[] = {
#define CN_ERROR(code, word, http, grpc, type) type,
#include "core/errors/errors.def"
#undef CN_ERROR
};
static const int statuses[] = {
#define CN_ERROR(code, word, http, grpc, type) http,
#include "core/errors/errors.def"
#undef CN_ERROR
};
#define N_WORDS (sizeof words / sizeof words[0])

/* The section of a word, from the line below its heading to the next heading; empty: none. */
static struct cn_str
section_of(const char *word)
{
    const char *page = (const char *)cn_errors_page, *end = page + cn_errors_page_bytes;
    const char *begin, *next;
    char heading[80];
    int len = snprintf(heading, sizeof heading, "\n### `%s`\n", word);

    if ((begin = memmem(page, cn_errors_page_bytes, heading, (size_t)len)) == NULL)
        return (struct cn_str){NULL, 0};
    begin += len;
    next = memmem(begin, (size_t)(end - begin), "\n##", 3);
    while (begin < end && *begin == '\n')
        begin++;
    return (struct cn_str){begin, (size_t)((next ? next : end) - begin)};
}

/* Where the text of a link ends: the closing bracket, if a target in parentheses follows. NULL: it
 * is not a link. */
static const char *
link_end(const char *at, const char *end)
{
    const char *close = memchr(at, ']', (size_t)(end - at));

    return close && close + 1 < end && close[1] == '(' ? close : NULL;
}

/* Appends the words of a paragraph, which is one line of Markdown, without the marks of bold text
 * and without the targets of links. */
static void
put_plain(struct cn_str line, struct cn_buf *out)
{
    const char *at = line.ptr, *end = line.ptr + line.len, *label_end = NULL;

    while (at < end) {
        if (*at == '*' && at + 1 < end && at[1] == '*') {
            at += 2;
        } else if (*at == '[' && !label_end && (label_end = link_end(at, end)) != NULL) {
            at++;
        } else if (at == label_end) {
            const char *target_end = memchr(at, ')', (size_t)(end - at));

            at = target_end ? target_end + 1 : end;
            label_end = NULL;
        } else {
            cn_buf_append(out, at++, 1);
        }
    }
}

/* Appends a text with its lines broken between words. */
static void
put_wrapped(struct cn_str text, struct cn_buf *out)
{
    size_t column = 0;

    while (text.len) {
        const struct cn_str word = cn_str_cut(&text, ' ');

        if (column && column + 1 + word.len > WIDTH)
            cn_buf_puts(out, "\n"), column = 0;
        if (column)
            cn_buf_puts(out, " "), column++;
        cn_buf_append_str(out, word);
        column += word.len;
    }
    cn_buf_puts(out, "\n");
}

static void
put_section(struct cn_str section, struct cn_buf *out)
{
    struct cn_buf plain;

    cn_buf_init(&plain, 0);
    while (section.len) {
        cn_buf_reset(&plain);
        put_plain(cn_str_cut(&section, '\n'), &plain);
        put_wrapped(cn_buf_str(&plain), out);
    }
    cn_buf_fini(&plain);
}

/* Does row i have this type or status? Both stand in an error's JSON, where the word does not. */
static bool
is_of_kind(size_t i, const char *kind)
{
    char status[16];

    snprintf(status, sizeof status, "%d", statuses[i]);
    return strcmp(types[i], kind) == 0 || strcmp(status, kind) == 0;
}

/* Appends the words of a type or status with their statuses; NULL: all words. */
static void
list_words(const char *kind, bool json, struct cn_buf *out)
{
    static const char *const heads[] = {"WORD", "HTTP"};
    json_t *list = json_array();
    struct cn_ctl_table table;

    cn_ctl_table_init(&table, "lr");
    for (size_t i = 0; i < 2; i++)
        cn_ctl_table_add(&table, "%s", heads[i]);
    for (size_t i = 0; i < N_WORDS; i++) {
        if (kind && !is_of_kind(i, kind))
            continue;
        cn_ctl_table_add(&table, "%s", words[i]);
        cn_ctl_table_add(&table, "%d", statuses[i]);
        json_array_append_new(list, json_pack("{s:s, s:i}", "word", words[i], "http", statuses[i]));
    }
    if (json)
        cn_ctl_json_print(json_incref(list), false, out);
    else
        cn_ctl_table_print(&table, out);
    json_decref(list);
    cn_ctl_table_fini(&table);
}

/* Appends what is known of a word. */
static void
explain(size_t i, bool json, struct cn_buf *out)
{
    struct cn_buf text;

    cn_buf_init(&text, 0);
    put_section(section_of(words[i]), &text);
    if (json)
        cn_ctl_json_print(json_pack("{s:s, s:i, s:s%}", "word", words[i], "http", statuses[i],
                                    "explanation", text.data, text.len),
                          false, out);
    else
        cn_buf_append_str(out, cn_buf_str(&text));
    cn_buf_fini(&text);
}

int
cn_ctl_explain(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
               struct cn_buf *hint, struct cn_error *err)
{
    const char *word = options->words[0], *near;
    size_t n = 0, first = 0;

    (void)http;
    if (!options->n_words)
        return list_words(NULL, options->json, out), 0;
    for (size_t i = 0; i < N_WORDS; i++) {
        if (cn_edit_distance(cn_str_from(words[i]), cn_str_from(word)) == 0)
            return explain(i, options->json, out), 0;
        if (is_of_kind(i, word) && n++ == 0)
            first = i;
    }
    if (n == 1)
        return explain(first, options->json, out), 0;
    if (n) {
        list_words(word, options->json, out);
        cn_buf_puts(hint, "One of these words stands in the header Continuo-Error, which curl -i "
                          "shows; continuo-ctl explain WORD explains it.\n");
        return 0;
    }
    near = cn_suggest(cn_str_from(word), words, N_WORDS);
    return cn_fail(err, CN_E_NOT_FOUND,
                   "there is no error word %.60s%s%s%s; continuo-ctl explain lists all words", word,
                   near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}
