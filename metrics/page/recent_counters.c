/* metrics/page/recent_counters.c - the counters of the last five minutes. On loop 0; the counters
 * of other loops are read while those write them.
 *
 * `continuo-ctl doctor` asks once and has no earlier reading to compare with, so the server keeps
 * the comparison: a counter's value now, minus its value in the newest note that is at least five
 * minutes old. In the first five minutes that is the note of the start. continuo_recent_seconds
 * says how long the window really is. */
#include "metrics/page/recent_counters.h"

#include "metrics/counters/metrics.h"

#define NOTE_MS 10000
#define WINDOW_MS (5 * 60 * 1000)

static const struct {
    enum cn_metric counter, recent;
} pairs[CN_RECENT_COUNTERS] = {
    {CN_M_HTTP_REQUESTS, CN_M_RECENT_HTTP_REQUESTS},
    {CN_M_HTTP_5XX, CN_M_RECENT_HTTP_5XX},
    {CN_M_ALL_JOBS, CN_M_RECENT_JOBS},
    {CN_M_ALL_JOBS_REFUSED, CN_M_RECENT_JOBS_REFUSED},
    {CN_M_LOOP_TURNS, CN_M_RECENT_TURNS},
    {CN_M_LOOP_SLOW_TURNS, CN_M_RECENT_SLOW_TURNS},
};

static uint64_t
sum_of(const struct cn_recent *recent, enum cn_metric counter)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < recent->n_loops; i++)
        sum += cn_metrics_get(cn_loop_metrics(recent->loops[i]), counter);
    return sum;
}

static void
make_note(struct cn_recent *recent)
{
    struct cn_recent_note *note = &recent->notes[recent->n_notes++ % CN_RECENT_NOTES];

    note->at_ms = cn_loop_now_ms(recent->loops[0]);
    for (unsigned i = 0; i < CN_RECENT_COUNTERS; i++)
        note->counters[i] = sum_of(recent, pairs[i].counter);
    cn_timer_set(cn_loop_wheel(recent->loops[0]), &recent->timer, note->at_ms + NOTE_MS);
}

static void
on_time(struct cn_timer *timer)
{
    make_note(cn_container_of(timer, struct cn_recent, timer));
}

void
cn_recent_begin(struct cn_recent *recent, struct cn_loop *const *loops, unsigned n_loops)
{
    *recent = (struct cn_recent){.loops = loops, .n_loops = n_loops};
    cn_timer_init(&recent->timer, on_time);
    make_note(recent);
}

void
cn_recent_end(struct cn_recent *recent)
{
    if (recent->n_notes)
        cn_timer_cancel(&recent->timer);
}

/* The newest note that is at least five minutes old, or the oldest one there is. */
static const struct cn_recent_note *
find_note(const struct cn_recent *recent, uint64_t now_ms)
{
    unsigned kept = recent->n_notes < CN_RECENT_NOTES ? recent->n_notes : CN_RECENT_NOTES;
    const struct cn_recent_note *note = NULL;

    for (unsigned back = 1; back <= kept; back++) {
        note = &recent->notes[(recent->n_notes - back) % CN_RECENT_NOTES];
        if (now_ms - note->at_ms >= WINDOW_MS)
            break;
    }
    return note;
}

void
cn_recent_show(const struct cn_recent *recent)
{
    const uint64_t now_ms = cn_loop_now_ms(recent->loops[0]);
    const struct cn_recent_note *note = find_note(recent, now_ms);
    struct cn_metrics *metrics = cn_loop_metrics(recent->loops[0]);

    cn_metrics_set(metrics, CN_M_RECENT_SECONDS, (now_ms - note->at_ms) / 1000);
    for (unsigned i = 0; i < CN_RECENT_COUNTERS; i++)
        cn_metrics_set(metrics, pairs[i].recent,
                       sum_of(recent, pairs[i].counter) - note->counters[i]);
}
