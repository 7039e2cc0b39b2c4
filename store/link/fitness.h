/* store/link/fitness.h - is a server that we have just connected to fit to hold states? Worker's
 * thread. */
#ifndef CN_STORE_LINK_FITNESS_H
#define CN_STORE_LINK_FITNESS_H

#include "store/link/valkey_server.h"

/* Logs in and asks the server about itself. CN_E_STORE_UNREACHABLE: it does not answer, is loading
 * its data, or is a replica, so another host or a later attempt may succeed.
 * CN_E_STATE_STORE: it refuses the password, or would lose states. */
int cn_valkey_check_server(struct cn_valkey_server *server, uint64_t deadline_us,
                           struct cn_error *err);
/* Logs in, if the URL has a password. CN_E_STATE_STORE: the server refuses it. */
int cn_valkey_log_in(struct cn_valkey_wire *wire, uint64_t deadline_us, struct cn_error *err);

/* Notes what INFO says about the history of the server's data and its replicas:
 * `server->began_history`, `server->replicas_online` and `server->confirming`. */
void cn_valkey_take_history(struct cn_valkey_server *server, struct cn_str info);

/* Asks the server, which must be connected, about the same things again. */
int cn_valkey_ask_replicas(struct cn_valkey_server *server, uint64_t deadline_us,
                           struct cn_error *err);

/* Finds the value of a field in the text of INFO, which has a line "name:value" for each. Empty: it
 * has no such field. */
struct cn_str cn_valkey_info_field(struct cn_str info, const char *name);

#endif
