/* ctl/doctor_show.h - prints a diagnosis. */
#ifndef CN_CTL_DOCTOR_SHOW_H
#define CN_CTL_DOCTOR_SHOW_H

#include "core/memory/buf.h"
#include "doctor/doctor.h"

/* Prints the diagnosis for people. The figures of the last line come from `view`, which is NULL if
 * the server does not answer. */
void cn_ctl_diagnosis_show(const struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_view *view,
                           const char *server, struct cn_buf *out);
/* Prints the first few problems and their reasons, for a screen that shows other things, too.
 * Prints nothing if there are no problems. */
void cn_ctl_diagnosis_brief(const struct cn_ctl_diagnosis *diagnosis, struct cn_buf *out);
/* Prints the diagnosis as a JSON object. */
void cn_ctl_diagnosis_json(const struct cn_ctl_diagnosis *diagnosis, const char *server,
                           struct cn_buf *out);

#endif
