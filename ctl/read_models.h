/* ctl/read_models.h - asks a server for all that a view shows. */
#ifndef CN_CTL_READ_MODELS_H
#define CN_CTL_READ_MODELS_H

#include "ctl/http_client.h"
#include "doctor/view.h"

struct cn_ctl_server {
    struct cn_ctl_http *http;
    const char *management, *metrics; /* base addresses */
};

/* Reads all models with all their versions. `view` must be new. It must be freed with
 * cn_ctl_view_fini() also after a failure. */
int cn_ctl_read(const struct cn_ctl_server *server, struct cn_ctl_view *view, struct cn_error *err);
/* Adds the metrics to the view. */
int cn_ctl_read_metrics(const struct cn_ctl_server *server, struct cn_ctl_view *view,
                        struct cn_error *err);

#endif
