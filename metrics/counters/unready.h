/* metrics/counters/unready.h - the reasons why a server is not ready, as rows of unready.def. No
 * state, any thread. */
#ifndef CN_METRICS_COUNTERS_UNREADY_H
#define CN_METRICS_COUNTERS_UNREADY_H

enum cn_unready {
#define CN_UNREADY(id, word, text) id,
#include "metrics/counters/unready.def"
#undef CN_UNREADY
    CN_N_UNREADY
};

/* A reason's word for metrics and JSON, and its sentence for people. */
const char *cn_unready_word(enum cn_unready reason);
const char *cn_unready_text(enum cn_unready reason);
/* The reason with this word; CN_UNREADY_OTHER if no row has it. */
enum cn_unready cn_unready_find(const char *word);

#endif
