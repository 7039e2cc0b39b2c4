/* ctl/doctor.h - what is wrong with a server, why, and what to do about it. */
#ifndef CN_CTL_DOCTOR_H
#define CN_CTL_DOCTOR_H

#include "core/memory/buf.h"
#include "ctl/view.h"

#define CN_CTL_FINDINGS_MAX 200

struct cn_ctl_finding {
    bool is_note;           /* worth knowing, but nothing is wrong */
    const char *what, *why; /* one sentence each; why may be NULL */
    const char *advice;     /* may be NULL */
};

struct cn_ctl_diagnosis {
    struct cn_arena arena; /* the findings' text */
    struct cn_ctl_finding findings[CN_CTL_FINDINGS_MAX];
    unsigned n_findings, n_problems;
};

void cn_ctl_diagnosis_init(struct cn_ctl_diagnosis *diagnosis);
void cn_ctl_diagnosis_fini(struct cn_ctl_diagnosis *diagnosis);

/* Looks at everything in the view, and at its metrics if it has them. `wall_ms`: of now; `server`:
 * the management address, for the commands that are advised. */
void cn_ctl_diagnose(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_view *view,
                     const char *server, uint64_t wall_ms);
/* The server did not show itself: `why` is what fetching it said. */
void cn_ctl_diagnose_silence(struct cn_ctl_diagnosis *diagnosis, const char *server,
                             const struct cn_error *why);
/* The metrics could not be had. */
void cn_ctl_diagnose_no_metrics(struct cn_ctl_diagnosis *diagnosis, const struct cn_error *why);

/* `view` for the last line's figures; NULL where the server is silent. */
void cn_ctl_diagnosis_show(const struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_view *view,
                           const char *server, struct cn_buf *out);
/* The first few problems and their reasons, for a screen that shows other things too; nothing where
 * there are none. */
void cn_ctl_diagnosis_brief(const struct cn_ctl_diagnosis *diagnosis, struct cn_buf *out);
void cn_ctl_diagnosis_json(const struct cn_ctl_diagnosis *diagnosis, const char *server,
                           struct cn_buf *out);

#endif
