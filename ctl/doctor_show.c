/* ctl/doctor_show.c - prints a diagnosis: for people, in short for the screen of `top`, and as
 * JSON.
 *
 * A finding is a problem or a note. Problems come first, each with what was seen, why it is so and
 * what to do; notes never make the exit status 1. The texts contain words of the server, such as
 * names of models and errors of handlers, so they are printed without control characters. */
#include "ctl/doctor_show.h"

#include <inttypes.h>

#include "ctl/columns.h"
#include "ctl/json_out.h"

#define BRIEF_MAX 3 /* two lines each; the tables need the rest of a small screen */

static void
put_line(struct cn_buf *out, const char *head, const char *text)
{
    if (!text)
        return;
    cn_buf_printf(out, "%-9s", head);
    cn_ctl_put_plain(out, text);
    cn_buf_puts(out, "\n");
}

void
cn_ctl_diagnosis_show(const struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_view *view,
                      const char *server, struct cn_buf *out)
{
    const struct cn_ctl_finding *finding;
    struct cn_ctl_totals totals;
    unsigned i, pass;

    for (pass = 0; pass < 2; pass++) { /* problems first, then notes */
        for (i = 0; i < diagnosis->n_findings; i++) {
            finding = &diagnosis->findings[i];
            if (finding->is_note != (pass == 1))
                continue;
            put_line(out, finding->is_note ? "note" : "PROBLEM", finding->what);
            put_line(out, "  why", finding->why);
            put_line(out, "  do", finding->advice);
            cn_buf_puts(out, "\n");
        }
    }
    if (diagnosis->n_problems)
        cn_buf_printf(out, "%u problem%s", diagnosis->n_problems,
                      diagnosis->n_problems == 1 ? "" : "s");
    else
        cn_buf_puts(out, "nothing wrong");
    if (!view) {
        cn_buf_puts(out, "\n");
        return;
    }
    totals = cn_ctl_view_totals(view);
    cn_buf_printf(out,
                  " at %s: %u model%s, %" PRIu32 " of %" PRIu32 " workers ready, %" PRIu64
                  " live sequences\n",
                  server, totals.n_models, totals.n_models == 1 ? "" : "s", totals.ready,
                  totals.want, totals.live_sequences);
}

void
cn_ctl_diagnosis_brief(const struct cn_ctl_diagnosis *diagnosis, struct cn_buf *out)
{
    const struct cn_ctl_finding *finding;
    unsigned i, shown = 0;

    for (i = 0; i < diagnosis->n_findings && shown < BRIEF_MAX; i++) {
        finding = &diagnosis->findings[i];
        if (finding->is_note)
            continue;
        put_line(out, "PROBLEM", finding->what);
        put_line(out, "  why", finding->why);
        shown++;
    }
    if (shown < diagnosis->n_problems)
        cn_buf_printf(out, "and %u more; ", diagnosis->n_problems - shown);
    if (shown)
        cn_buf_puts(out, "continuo-ctl doctor says what to do\n\n");
}

void
cn_ctl_diagnosis_json(const struct cn_ctl_diagnosis *diagnosis, const char *server,
                      struct cn_buf *out)
{
    cn_ctl_json_print(cn_ctl_diagnosis_value(diagnosis, server), false, out);
}
