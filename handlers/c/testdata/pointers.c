/* A handler whose state has pointers: appends words to a list. For handlers/c/c_runtime_test.c. */
#include <continuo/handler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct word {
    struct word *next;
    size_t len;
    char text[32];
};

struct words {
    struct word *first, *last;
};

static void *
create(struct continuo_model *model)
{
    (void)model;
    return calloc(1, sizeof(struct words));
}

static void
destroy(struct continuo_model *model, void *object)
{
    struct words *words = object;

    (void)model;
    while (words->first) {
        struct word *next = words->first->next;

        free(words->first);
        words->first = next;
    }
    free(words);
}

static void
append(struct words *words, const char *text, size_t len)
{
    struct word *word = calloc(1, sizeof(*word));

    word->len = len < sizeof(word->text) ? len : sizeof(word->text);
    memcpy(word->text, text, word->len);
    if (words->last)
        words->last->next = word;
    else
        words->first = word;
    words->last = word;
}

static int
save(struct continuo_model *model, const void *object, struct continuo_writer *out)
{
    const struct words *words = object;

    (void)model;
    for (const struct word *word = words->first; word; word = word->next) {
        unsigned char len = (unsigned char)word->len;

        if (continuo_write(out, &len, 1) != 0 || continuo_write(out, word->text, len) != 0)
            return -1;
    }
    return 0;
}

static void *
restore(struct continuo_model *model, uint32_t from_schema, const void *bytes, size_t len)
{
    const char *at = bytes, *end = at + len;
    struct words *words = create(model);

    while (at < end) {
        size_t n = (unsigned char)*at++;

        if (n > (size_t)(end - at) || from_schema != 1) {
            destroy(model, words);
            return NULL;
        }
        append(words, at, n);
        at += n;
    }
    return words;
}

static int
run(struct continuo_model *model, struct continuo_item *const *items, size_t n)
{
    (void)model;
    for (size_t i = 0; i < n; i++) {
        struct words *words = continuo_object(items[i]);
        struct continuo_bytes body = continuo_body(items[i]);
        char text[512];
        int len = 0;

        if (!words)
            continue;
        append(words, body.data, body.len);
        for (struct word *word = words->first; word && len < 400; word = word->next)
            len += snprintf(text + len, sizeof(text) - (size_t)len, "%.*s,", (int)word->len,
                            word->text);
        continuo_reply(items[i], text, (size_t)len);
    }
    return 0;
}

static char closed[256];

static void
on_close(struct continuo_model *model, struct continuo_bytes sequence_id, void *state,
         const char *reason)
{
    struct words *words = state;

    (void)model;
    snprintf(closed, sizeof(closed), "%.*s %s %.*s", (int)sequence_id.len, sequence_id.data, reason,
             words ? (int)words->first->len : 1, words ? words->first->text : "-");
    setenv("CN_TEST_CLOSED", closed, 1);
}

const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI,
    .size = sizeof(struct continuo_handler),
    .run = run,
    .close = on_close,
    .create = create,
    .destroy = destroy,
    .save = save,
    .restore = restore,
};
