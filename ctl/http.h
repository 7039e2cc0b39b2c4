/* ctl/http.h - GET from a running server. One thread. */
#ifndef CN_CTL_HTTP_H
#define CN_CTL_HTTP_H

#include "core/buf.h"
#include "core/error.h"

struct cn_ctl_http;

/* Never NULL. */
struct cn_ctl_http *cn_ctl_http_create(void);
void cn_ctl_http_destroy(struct cn_ctl_http *http);

/* May `url` be asked? http://HOST:PORT, https://HOST:PORT or unix:/PATH, else CN_E_CONFIG. */
int cn_ctl_url_check(const char *url, struct cn_error *err);
/* The body of base + path (a path as it goes on the wire) into `body`, which is emptied first.
 * CN_E_UNAVAILABLE: nobody answered; CN_E_NOT_FOUND: 404; CN_E_PROTOCOL: any other status, with the
 * server's own words where it gave some. */
int cn_ctl_http_get(struct cn_ctl_http *http, const char *base, const char *path,
                    struct cn_buf *body, struct cn_error *err);
/* Appends `text` as a part of a path: what a path can't hold becomes %XX. */
void cn_ctl_put_escaped(struct cn_buf *out, const char *text);

#endif
