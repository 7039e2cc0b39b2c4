/* frontend/server/server.h - the whole server, from its sockets to its end. */
#ifndef CN_FRONTEND_SERVER_SERVER_H
#define CN_FRONTEND_SERVER_SERVER_H

#include "config/server/server_config.h"

/* Runs until SIGTERM or SIGINT, in the calling thread. `on_ready(ctx)` (may be NULL) once, right
 * after the ready line. Returns the exit code: 0 after a clean stop; 1 when it could not start, or
 * not load a model (--exit-on-model-failure), with one line on stderr that says why. */
int cn_server_run(const struct cn_server_config *config, void (*on_ready)(void *ctx), void *ctx);

#endif
