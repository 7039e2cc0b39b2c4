/* frontend/http/access_log.h - a line a request: who asked what, what came of it, which step that
 * was. */
#ifndef CN_FRONTEND_HTTP_ACCESS_LOG_H
#define CN_FRONTEND_HTTP_ACCESS_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "config/server/server_config.h"
#include "core/text/str.h"

/* One request of any protocol. What is not known is empty or 0. */
struct cn_access {
    const char *client; /* "127.0.0.1:41234", "[::1]:41234", "unix"; NULL: "-" */
    struct cn_str method, path;
    const char *protocol;         /* "HTTP/1.1" */
    unsigned status;              /* 499: the client went away before there was one */
    uint64_t us;                  /* from the request's headers to the end of its answer */
    uint64_t bytes_in, bytes_out; /* of the bodies */
    const char *model, *version;
    struct cn_str sequence;
    uint64_t step;
    const char *request_id;
};

/* At start, before loops run. */
void cn_access_log_setup(const struct cn_server_config *config);
/* Is there anybody to write for? */
bool cn_access_log_enabled(void);
/* On a loop; never waits. Long paths and ids are cut. */
void cn_access_log_put(const struct cn_access *access);
/* The line that put writes, with its end; returns its length. For tests. */
#define CN_ACCESS_LINE_MAX 4096
unsigned long cn_access_log_format(const struct cn_access *access, bool json, uint64_t wall_ms,
                                   char out[CN_ACCESS_LINE_MAX]);

#endif
