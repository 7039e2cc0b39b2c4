/* frontend/http/access_log.h - the access log: one line for each request, with its client, its
 * outcome and its step. */
#ifndef CN_FRONTEND_HTTP_ACCESS_LOG_H
#define CN_FRONTEND_HTTP_ACCESS_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "config/server/server_config.h"
#include "core/text/str.h"

/* One request of any protocol. Unknown texts are empty or NULL, unknown numbers are 0. */
struct cn_access {
    const char *client; /* "127.0.0.1:41234", "[::1]:41234", "unix"; NULL: "-" */
    struct cn_str method, path;
    const char *protocol; /* "HTTP/1.1" */
    unsigned status;      /* HTTP status; 499: the client left before there was an answer */
    uint64_t us;          /* microseconds from the request's headers to the end of its answer */
    uint64_t bytes_in, bytes_out; /* bytes of request and response body */
    const char *model, *version;
    struct cn_str sequence;
    uint64_t step;
    const char *request_id;
};

/* Reads the options. Call it once at start, before loops run. */
void cn_access_log_setup(const struct cn_server_config *config);
/* Is the access log switched on? Callers ask this first, to save the work of filling a struct
 * cn_access. */
bool cn_access_log_enabled(void);
/* Writes one line. Runs on a loop and never waits for the disk. Long paths and ids are cut. */
void cn_access_log_put(const struct cn_access *access);
/* Formats the line that cn_access_log_put writes, with its newline, and returns its length in
 * bytes. `wall_ms`: Unix time in milliseconds. Declared for the tests. */
#define CN_ACCESS_LINE_MAX 4096
unsigned long cn_access_log_format(const struct cn_access *access, bool json, uint64_t wall_ms,
                                   char out[CN_ACCESS_LINE_MAX]);

#endif
