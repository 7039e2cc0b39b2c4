/* config/model/model_words.c - the words that some keys of a model's YAML take. Any thread. */
#include "config/model/model_words.h"

#include <stdio.h>

#include "core/errors/panic.h"

static const struct {
    const char *path, *words[4];
} lists[] = {
    {"stream.input", {"none", "audio", "series"}},
    {"stream.encoding", {"pcm_s16le", "pcm_f32le", "mulaw"}},
    {"stream.nanPolicy", {"refuse", "zero"}},
    {"stream.answers", {"list", "bytes"}},
};

const char *const *
cn_model_words(const char *path)
{
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        if (strcmp(lists[i].path, path) == 0)
            return lists[i].words;
    cn_unreachable();
}

int
cn_model_word_parse(const char *path, struct cn_str word)
{
    const char *const *words = cn_model_words(path);

    for (int i = 0; words[i]; i++)
        if (cn_str_eq(word, cn_str_from(words[i])))
            return i;
    return -1;
}

const char *
cn_model_words_text(const char *path, const char *last, char out[96])
{
    const char *const *words = cn_model_words(path);
    size_t len = 0;

    for (int i = 0; words[i]; i++)
        len += (size_t)snprintf(out + len, 96 - len, "%s%s",
                                i == 0         ? ""
                                : words[i + 1] ? ", "
                                               : last,
                                words[i]);
    return out;
}
