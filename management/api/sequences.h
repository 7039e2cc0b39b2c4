/* management/api/sequences.h - what the management API does with single sequences. Loop 0. */
#ifndef CN_MANAGEMENT_API_SEQUENCES_H
#define CN_MANAGEMENT_API_SEQUENCES_H

#include <jansson.h>

#include "management/management_priv.h"

/* `value` belongs to the callee; or it is NULL and `err` says why. In all functions `version` NULL
 * means the default one. */
typedef void (*cn_sequence_done_fn)(void *ctx, json_t *value, const struct cn_error *err);

/* Deletes a sequence, live or stored, and answers when a worker has done it. A second deletion is
 * not an error. */
void cn_sequence_remove(struct cn_management *management, const char *name, const char *version,
                        const char *id, cn_sequence_done_fn done, void *ctx);

/* Which sequences a list shows: those that the server has open; all that are open, some perhaps on
 * disk only; those that are closed and still remembered; or the last two together. */
enum cn_sequence_which {
    CN_SEQUENCES_LIVE,
    CN_SEQUENCES_OPEN,
    CN_SEQUENCES_CLOSED,
    CN_SEQUENCES_ALL
};
/* Reads "live", "open", "closed" or "all"; -1 for other words. */
int cn_sequence_which_parse(const char *word);

struct cn_sequence_list {
    const char *prefix; /* ids must begin with it; NULL: any id */
    const char *token;  /* token of the page before; NULL: the first page */
    uint64_t min_idle_ms;
    uint32_t limit; /* sequences on a page; a page may have fewer and still not be the last */
    enum cn_sequence_which which;
};
/* A page of sequences and, if there may be more, nextPageToken. */
void cn_sequence_list(struct cn_management *management, const char *name, const char *version,
                      const struct cn_sequence_list *list, cn_sequence_done_fn done, void *ctx);

/* Shows all that is known of one sequence; for a closed one also why it was closed. */
void cn_sequence_show(struct cn_management *management, const char *name, const char *version,
                      const char *id, bool with_state, cn_sequence_done_fn done, void *ctx);

/* `bytes` (borrowed until return): the exported file (exported_sequence.h), or NULL and an
 * error. */
typedef void (*cn_sequence_export_fn)(void *ctx, const struct cn_str *bytes,
                                      const struct cn_error *err);
/* Exports an open sequence as its last committed step left it. */
void cn_sequence_export(struct cn_management *management, const char *name, const char *version,
                        const char *id, cn_sequence_export_fn done, void *ctx);

/* Imports a sequence under `id`, as a new generation whose clocks begin now. `bytes` stay valid
 * until done. `replace`: also over an open sequence, which is closed by that. `any_model`: also one
 * that was exported from a model of another name. */
struct cn_sequence_import {
    struct cn_str bytes;
    bool replace, any_model;
};
void cn_sequence_import(struct cn_management *management, const char *name, const char *version,
                        const char *id, const struct cn_sequence_import *import,
                        cn_sequence_done_fn done, void *ctx);

/* Copies an open sequence to the id `to`, which must not be open. */
void cn_sequence_fork(struct cn_management *management, const char *name, const char *version,
                      const char *id, const char *to, cn_sequence_done_fn done, void *ctx);

#endif
