/* doctor/doctor.h - finds out what is wrong with a server, why, and what to do about it. */
#ifndef CN_DOCTOR_DOCTOR_H
#define CN_DOCTOR_DOCTOR_H

#include <jansson.h>

#include "doctor/view.h"

#define CN_CTL_FINDINGS_MAX 200

struct cn_ctl_finding {
    bool is_note;           /* worth knowing, but nothing is wrong */
    const char *what, *why; /* one sentence each; `why` may be NULL */
    const char *advice;     /* may be NULL */
};

struct cn_ctl_diagnosis {
    struct cn_arena arena; /* has the texts of the findings */
    struct cn_ctl_finding findings[CN_CTL_FINDINGS_MAX];
    unsigned n_findings, n_problems;
};

void cn_ctl_diagnosis_init(struct cn_ctl_diagnosis *diagnosis);
void cn_ctl_diagnosis_fini(struct cn_ctl_diagnosis *diagnosis);

/* Looks at everything in the view, and at its metrics if it has them. `wall_ms` is the present
 * time. `server` is the management address; it is used in the commands that the doctor advises. */
void cn_ctl_diagnose(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_view *view,
                     const char *server, uint64_t wall_ms);
/* Makes a finding of a server that does not answer. `why` is the error of the request. */
void cn_ctl_diagnose_silence(struct cn_ctl_diagnosis *diagnosis, const char *server,
                             const struct cn_error *why);
/* Makes a note of metrics that cannot be read. */
void cn_ctl_diagnose_no_metrics(struct cn_ctl_diagnosis *diagnosis, const struct cn_error *why);

/* Adds a finding; `what` must live as long as the diagnosis. The caller may set `why` and `advice`.
 */
struct cn_ctl_finding *cn_ctl_diagnosis_add(struct cn_ctl_diagnosis *diagnosis, bool is_note,
                                            const char *what);

/* Makes the diagnosis a JSON object; the caller releases it. */
json_t *cn_ctl_diagnosis_value(const struct cn_ctl_diagnosis *diagnosis, const char *server);

#endif
