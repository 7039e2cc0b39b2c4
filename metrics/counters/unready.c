/* metrics/counters/unready.c - the rows of unready.def as a table. No state, any thread. */
#include "metrics/counters/unready.h"

#include <string.h>

static const struct {
    const char *word, *text;
} reasons[CN_N_UNREADY] = {
#define CN_UNREADY(id, word, text) {word, text},
#include "metrics/counters/unready.def"
#undef CN_UNREADY
};

const char *
cn_unready_word(enum cn_unready reason)
{
    return reasons[reason].word;
}

const char *
cn_unready_text(enum cn_unready reason)
{
    return reasons[reason].text;
}

/* The last row is CN_UNREADY_OTHER, at which the search ends. */
enum cn_unready
cn_unready_find(const char *word)
{
    int i = 0;

    while (i < CN_UNREADY_OTHER && strcmp(reasons[i].word, word) != 0)
        i++;
    return (enum cn_unready)i;
}
