/* ctl/http_client.h - makes HTTP requests to a running server. One thread. */
#ifndef CN_CTL_HTTP_CLIENT_H
#define CN_CTL_HTTP_CLIENT_H

#include "core/errors/error.h"
#include "core/memory/buf.h"

struct cn_ctl_http;

/* Creates a client. Never returns NULL. */
struct cn_ctl_http *cn_ctl_http_create(void);
void cn_ctl_http_destroy(struct cn_ctl_http *http);

/* Checks the form of an address: http://HOST:PORT, https://HOST:PORT or unix:/PATH. Returns
 * CN_E_CONFIG for any other. */
int cn_ctl_url_check(const char *url, struct cn_error *err);
struct cn_ctl_call {
    const char *method, *path; /* the path is escaped already */
    struct cn_str body;        /* for PUT and POST */
    size_t max_bytes;          /* the limit for the answer */
};
/* Makes the request base + path, and puts the answer's body into `answer`, which is emptied first.
 * Returns CN_E_UNAVAILABLE if nobody answered, CN_E_NOT_FOUND for 404, CN_E_CONFLICT for 409, or
 * CN_E_PROTOCOL for any other error status. The error has the server's own message if there was
 * one. */
int cn_ctl_http_call(struct cn_ctl_http *http, const char *base, const struct cn_ctl_call *call,
                     struct cn_buf *answer, struct cn_error *err);
/* Makes a GET request whose answer has the usual size. */
int cn_ctl_http_get(struct cn_ctl_http *http, const char *base, const char *path,
                    struct cn_buf *body, struct cn_error *err);
/* Appends `text` as a part of a path. Bytes that a path cannot hold are written as %XX. */
void cn_ctl_put_escaped(struct cn_buf *out, const char *text);

#endif
