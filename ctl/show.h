/* ctl/show.h - prints views as tables and as JSON. All functions append to `out`. */
#ifndef CN_CTL_SHOW_H
#define CN_CTL_SHOW_H

#include "core/memory/buf.h"
#include "doctor/doctor.h"

void cn_ctl_show_status(const struct cn_ctl_view *view, const char *server, struct cn_buf *out);
void cn_ctl_show_models(const struct cn_ctl_view *view, struct cn_buf *out);
void cn_ctl_show_workers(const struct cn_ctl_view *view, struct cn_buf *out);
/* Prints what changed between two views, and what is wrong. */
void cn_ctl_show_top(const struct cn_ctl_view *before, const struct cn_ctl_view *now,
                     const struct cn_ctl_diagnosis *diagnosis, const char *server,
                     struct cn_buf *out);

/* The functions below write one JSON value and a newline. */
void cn_ctl_json_status(const struct cn_ctl_view *view, const char *server, struct cn_buf *out);
void cn_ctl_json_models(const struct cn_ctl_view *view, struct cn_buf *out);
void cn_ctl_json_workers(const struct cn_ctl_view *view, struct cn_buf *out);
/* Writes one line, so that a program can read the stream line by line. */
void cn_ctl_json_top(const struct cn_ctl_view *before, const struct cn_ctl_view *now,
                     const char *server, struct cn_buf *out);
/* Writes {"error": "..."}. */
void cn_ctl_json_error(const char *message, bool one_line, struct cn_buf *out);

#endif
