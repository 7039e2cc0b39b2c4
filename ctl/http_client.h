/* ctl/http_client.h - requests to a running server. One thread. */
#ifndef CN_CTL_HTTP_CLIENT_H
#define CN_CTL_HTTP_CLIENT_H

#include "core/errors/error.h"
#include "core/memory/buf.h"

struct cn_ctl_http;

/* Never NULL. */
struct cn_ctl_http *cn_ctl_http_create(void);
void cn_ctl_http_destroy(struct cn_ctl_http *http);

/* May `url` be asked? http://HOST:PORT, https://HOST:PORT or unix:/PATH, else CN_E_CONFIG. */
int cn_ctl_url_check(const char *url, struct cn_error *err);
struct cn_ctl_call {
    const char *method, *path; /* a path as it goes on the wire */
    struct cn_str body;        /* of PUT and POST */
    size_t max_bytes;          /* of the answer */
};
/* Requests base + path, and puts the answer's body into `answer`, which is emptied first.
 * CN_E_UNAVAILABLE: nobody answered; CN_E_NOT_FOUND: 404; CN_E_CONFLICT: 409; CN_E_PROTOCOL: any
 * other status. The error has the server's own message if there was one. */
int cn_ctl_http_call(struct cn_ctl_http *http, const char *base, const struct cn_ctl_call *call,
                     struct cn_buf *answer, struct cn_error *err);
/* Makes a GET request whose answer has the usual size. */
int cn_ctl_http_get(struct cn_ctl_http *http, const char *base, const char *path,
                    struct cn_buf *body, struct cn_error *err);
/* Appends `text` as a part of a path: bytes that a path cannot hold become %XX. */
void cn_ctl_put_escaped(struct cn_buf *out, const char *text);

#endif
