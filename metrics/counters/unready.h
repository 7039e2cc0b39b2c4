/* metrics/counters/unready.h - why a server isn't ready, as rows of unready.def. No state. */
#ifndef CN_METRICS_COUNTERS_UNREADY_H
#define CN_METRICS_COUNTERS_UNREADY_H

enum cn_unready {
#define CN_UNREADY(id, word, text) id,
#include "metrics/counters/unready.def"
#undef CN_UNREADY
    CN_N_UNREADY
};

const char *cn_unready_word(enum cn_unready reason);
const char *cn_unready_text(enum cn_unready reason);
/* The reason of that word; CN_UNREADY_OTHER for a word that no row has. */
enum cn_unready cn_unready_find(const char *word);

#endif
