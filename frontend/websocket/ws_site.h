/* frontend/websocket/ws_site.h - the streams of each loop, how a loop finds those of the others,
 * and tickets.
 *
 * A site belongs to a listener of the inference interface, and so to one loop. The hub knows all
 * sites, which are made before the loops run. After that only its tickets change; they have a lock,
 * and are needed only when a stream is opened.
 */
#ifndef CN_FRONTEND_WEBSOCKET_WS_SITE_H
#define CN_FRONTEND_WEBSOCKET_WS_SITE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"
#include "core/containers/table.h"
#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/text/str.h"

struct cn_http_listener;
struct cn_http_shared;
struct cn_key;
struct cn_ws_deflate;
struct cn_ws_hub;
struct cn_ws_stream;

#define CN_WS_SCRATCH_BYTES 65536

struct cn_ws_site {
    struct cn_http_listener *listener;
    struct cn_list streams;
    uint32_t n_streams;
    struct cn_table *by_sequence;  /* streams of models with sequences, one for each sequence */
    struct cn_ws_deflate *deflate; /* made when the first stream needs it */
    char *scratch;                 /* what was read from a socket; made with the first stream */
    struct cn_buf message;         /* the answer that is just being written; empty otherwise */
    bool leaving;                  /* streams are told to connect elsewhere */
};

struct cn_ws_hub *cn_ws_hub_create(unsigned n_loops);
void cn_ws_hub_destroy(struct cn_ws_hub *hub);

/* Makes the site of a listener, before the loops run. */
struct cn_ws_site *cn_ws_site_create(struct cn_http_listener *listener);
/* Frees a site, whose streams must be gone. NULL is allowed. */
void cn_ws_site_destroy(struct cn_ws_site *site);
/* Asks all streams of the site to connect elsewhere: each one ends with its last answer. */
void cn_ws_site_leave(struct cn_ws_site *site);

/* Adds a stream to the site. If it has a sequence, the older streams of that sequence, on all
 * loops, are closed. */
void cn_ws_site_add(struct cn_ws_site *site, struct cn_ws_stream *stream);
void cn_ws_site_remove(struct cn_ws_site *site, struct cn_ws_stream *stream);

/* --- tickets, any thread */

#define CN_WS_TICKET_BYTES 44 /* with its NUL */
#define CN_WS_TICKETS_MAX 1024

/* The client for whom a ticket stands. */
struct cn_ws_ticket_client {
    const struct cn_key *key;     /* its named key, or NULL */
    uint64_t certificate_ends_ms; /* wall time; CN_NEVER: it has shown no certificate */
};

/* Makes a ticket that opens one stream until `now_ms` + `lifetime_ms`. Returns CN_E_TOO_MANY_CALLS
 * if there are too many tickets that were not used yet. */
int cn_ws_ticket_make(struct cn_ws_hub *hub, uint64_t now_ms, uint64_t lifetime_ms,
                      const struct cn_ws_ticket_client *client, char out[CN_WS_TICKET_BYTES],
                      struct cn_error *err);
/* Uses a ticket up. Returns CN_E_TOKEN if there is no such ticket, or no more. */
int cn_ws_ticket_use(struct cn_ws_hub *hub, uint64_t now_ms, struct cn_str ticket,
                     struct cn_ws_ticket_client *client, struct cn_error *err);

#endif
