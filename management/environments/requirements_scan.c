/* management/environments/requirements_scan.c - which files a requirements file refers to. Any
 * thread.
 *
 * This is not a parser of the whole format: a word that could be a path is reported, and the caller
 * looks whether there is such a file. A word too many does no harm, because the caller ignores what
 * does not exist.
 *
 * An example of a requirements file, and what is reported about each line:
 *   -r base.txt                                    the requirements file base.txt
 *   --constraint=pins.txt                          the requirements file pins.txt
 *   ./libs/helper.whl                              the path ./libs/helper.whl
 *   thing @ file:dist/thing-1.0.tar.gz ; extra     the path dist/thing-1.0.tar.gz
 *   https://example.org/other.whl                  nothing: it is not on this machine */
#include "management/environments/requirements_scan.h"

#include <stdbool.h>
#include <string.h>

static bool
begins_with(struct cn_str text, const char *with)
{
    const size_t len = strlen(with);

    return text.len >= len && memcmp(text.ptr, with, len) == 0;
}

static bool
ends_with(struct cn_str text, const char *with)
{
    const size_t len = strlen(with);

    return text.len >= len && memcmp(text.ptr + text.len - len, with, len) == 0;
}

static struct cn_str
without(struct cn_str text, size_t first)
{
    return (struct cn_str){text.ptr + first, text.len - first};
}

/* Takes the next word off the line. A word that begins with # begins a comment. */
static struct cn_str
next_word(struct cn_str *line)
{
    struct cn_str word;

    while (line->len && memchr(" \t\r\\", line->ptr[0], 4))
        *line = without(*line, 1);
    word = (struct cn_str){line->ptr, 0};
    while (word.len < line->len && !memchr(" \t\r", line->ptr[word.len], 3))
        word.len++;
    *line = without(*line, word.len);
    if (word.len && word.ptr[0] == '#')
        word.len = line->len = 0;
    return word;
}

/* Is it -r, -c or one of their long forms? Then *rest is the path that is glued to it, or empty. */
static bool
names_file(struct cn_str word, struct cn_str *rest)
{
    static const char *const flags[] = {"--requirement", "--constraint", "-r", "-c"};

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!begins_with(word, flags[i]))
            continue;
        *rest = without(word, strlen(flags[i]));
        if (flags[i][1] == '-' && rest->len && rest->ptr[0] != '=')
            return false;
        if (rest->len && rest->ptr[0] == '=')
            *rest = without(*rest, 1);
        return true;
    }
    return false;
}

static void
report(cn_requirement_fn fn, void *ctx, enum cn_requirement_kind kind, struct cn_str path)
{
    if (path.len && !memchr(path.ptr, '\0', path.len))
        fn(ctx, kind, path);
}

/* A word that may be the path of a package: file:PATH, ./PATH, PATH.whl. What follows ; [ or # in
 * it is not part of the path. */
static void
look_at_word(struct cn_str word, cn_requirement_fn fn, void *ctx)
{
    if (begins_with(word, "file:"))
        word = without(word, begins_with(word, "file://") ? 7 : 5);
    for (size_t i = 0; i < word.len; i++)
        if (memchr(";[#", word.ptr[i], 3))
            word.len = i;
    if (memmem(word.ptr, word.len, "://", 3))
        return;
    if (memchr(word.ptr, '/', word.len) || begins_with(word, ".") || ends_with(word, ".whl") ||
        ends_with(word, ".gz") || ends_with(word, ".zip"))
        report(fn, ctx, CN_REQUIREMENT_PATH, word);
}

static void
look_at_line(struct cn_str line, cn_requirement_fn fn, void *ctx)
{
    struct cn_str word, path;

    while ((word = next_word(&line)).len) {
        if (!names_file(word, &path)) {
            look_at_word(word, fn, ctx);
            continue;
        }
        if (!path.len)
            path = next_word(&line);
        if (!memmem(path.ptr, path.len, "://", 3))
            report(fn, ctx, CN_REQUIREMENT_FILE, path);
    }
}

void
cn_requirements_scan(struct cn_str text, cn_requirement_fn fn, void *ctx)
{
    while (text.len) {
        const char *end = memchr(text.ptr, '\n', text.len);
        struct cn_str line = {text.ptr, end ? (size_t)(end - text.ptr) : text.len};

        look_at_line(line, fn, ctx);
        text = without(text, line.len + (end != NULL));
    }
}
