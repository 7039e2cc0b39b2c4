/* metrics/page/recent_counters.h - what the server counted in the last five minutes, for a program
 * that looks only once.
 *
 * Every ten seconds the counters of all loops are noted in a ring. A reader gets the difference to
 * the note of five minutes ago. Requests pay nothing for it. On loop 0. */
#ifndef CN_METRICS_PAGE_RECENT_COUNTERS_H
#define CN_METRICS_PAGE_RECENT_COUNTERS_H

#include <stdint.h>

#include "core/loop/loop.h"
#include "core/time/timer_wheel.h"

#define CN_RECENT_NOTES 32 /* one every ten seconds: five minutes, and two to spare */
#define CN_RECENT_COUNTERS 6

struct cn_recent {
    struct cn_loop *const *loops;
    unsigned n_loops;
    struct cn_timer timer;
    struct cn_recent_note {
        uint64_t at_ms, counters[CN_RECENT_COUNTERS];
    } notes[CN_RECENT_NOTES]; /* a ring of notes */
    unsigned n_notes;         /* all notes ever made; the first one is made at the start */
};

/* Makes the first note. Before any loop runs; `loops` are borrowed. */
void cn_recent_begin(struct cn_recent *recent, struct cn_loop *const *loops, unsigned n_loops);
void cn_recent_end(struct cn_recent *recent);
/* Sets the metrics continuo_recent_... of loop 0. */
void cn_recent_show(const struct cn_recent *recent);

#endif
