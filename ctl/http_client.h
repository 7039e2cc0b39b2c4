/* ctl/http_client.h - makes HTTP requests to a running server. A client belongs to one thread. */
#ifndef CN_CTL_HTTP_CLIENT_H
#define CN_CTL_HTTP_CLIENT_H

#include <stdbool.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"

struct cn_ctl_http;

/* Initializes libcurl for the whole process, and undoes it. main calls them once each, before the
 * first thread begins and after the last one has ended: libcurl does not promise that threads may
 * do it. */
void cn_ctl_http_begin(void);
void cn_ctl_http_end(void);

/* Creates a client. Never returns NULL. Several threads may have clients of their own. */
struct cn_ctl_http *cn_ctl_http_create(void);
void cn_ctl_http_destroy(struct cn_ctl_http *http);

/* Checks the form of an address: http://HOST:PORT, https://HOST:PORT or unix:/PATH. Returns
 * CN_E_CONFIG for any other. */
int cn_ctl_url_check(const char *url, struct cn_error *err);
struct cn_ctl_call {
    const char *method, *path;  /* the path is escaped already */
    struct cn_str body;         /* for PUT and POST */
    size_t max_bytes;           /* the limit for the answer */
    bool patient;               /* the answer may take an hour: a model loads, a handler works */
    const char *const *headers; /* lines such as "Accept: text/plain" */
    unsigned n_headers;
    struct cn_buf *answer_headers; /* gets the lines of the answer's head; NULL: not wanted */
};
/* Makes the request base + path, and puts the answer's body into `answer`, which is emptied first.
 * Returns CN_E_UNAVAILABLE if nobody answered, CN_E_NOT_FOUND for 404, CN_E_CONFLICT for 409,
 * CN_E_SEQUENCE_ENDED for 410, or CN_E_PROTOCOL for any other error status. The error has the
 * server's own message if there was one. */
int cn_ctl_http_call(struct cn_ctl_http *http, const char *base, const struct cn_ctl_call *call,
                     struct cn_buf *answer, struct cn_error *err);
/* Makes a GET request whose answer has the usual size. */
int cn_ctl_http_get(struct cn_ctl_http *http, const char *base, const char *path,
                    struct cn_buf *body, struct cn_error *err);
/* Appends `text` as a part of a path. Bytes that a path cannot hold are written as %XX. */
void cn_ctl_put_escaped(struct cn_buf *out, const char *text);

#endif
