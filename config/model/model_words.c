/* config/model/model_words.c - the words that some keys of a model's YAML take. Any thread. */
#include "config/model/model_words.h"

#include <stdio.h>

#include "config/model/model_config.h"
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

/* --- words of model_config.h */

static const char *const durability_words[] = {"none", "process", "power"};
static const char *const swap_words[] = {"pin", "migrate", "reset", "reject"};
static const char *const expired_words[] = {"refuse", "restart"};
static const char *const parallel_words[] = {"", "custom"};

static int
find_word(const char *const *words, int n, struct cn_str word)
{
    for (int i = 0; i < n; i++)
        if (cn_str_eq(word, cn_str_from(words[i])))
            return i;
    return -1;
}

int
cn_durability_parse(struct cn_str word)
{
    return find_word(durability_words, 3, word);
}

const char *
cn_durability_word(enum cn_durability durability)
{
    cn_assert((unsigned)durability < 3);
    return durability_words[durability];
}

int
cn_swap_policy_parse(struct cn_str word)
{
    return find_word(swap_words, 4, word);
}

const char *
cn_swap_policy_word(enum cn_swap_policy policy)
{
    cn_assert((unsigned)policy < 4);
    return swap_words[policy];
}

int
cn_on_expired_parse(struct cn_str word)
{
    return find_word(expired_words, 2, word);
}

const char *
cn_on_expired_word(enum cn_on_expired what)
{
    cn_assert((unsigned)what < 2);
    return expired_words[what];
}

int
cn_parallel_parse(struct cn_str word)
{
    return find_word(parallel_words, 2, word);
}

const char *
cn_parallel_word(enum cn_parallel parallel)
{
    cn_assert((unsigned)parallel < 2);
    return parallel_words[parallel];
}
