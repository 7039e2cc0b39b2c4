/* frontend/server/server.h - runs the whole server, from its sockets to its end. */
#ifndef CN_FRONTEND_SERVER_SERVER_H
#define CN_FRONTEND_SERVER_SERVER_H

#include "config/server/server_config.h"

/* Runs the server in the calling thread until SIGTERM or SIGINT. Calls `on_ready(ctx)` once, right
 * after the ready line; it may be NULL. Returns the exit code: 0 after a clean stop; 1 when the
 * server could not start or could not load a model (--exit-on-model-failure), with one line on
 * stderr that says why. */
int cn_server_run(const struct cn_server_config *config, void (*on_ready)(void *ctx), void *ctx);

#endif
