/* management/api/sequences.h - what management does to single sequences. Loop 0. */
#ifndef CN_MANAGEMENT_API_SEQUENCES_H
#define CN_MANAGEMENT_API_SEQUENCES_H

#include <jansson.h>

#include "management/management_priv.h"

/* `value` (the callee's), or NULL and what was wrong. `version` is NULL for the default one. */
typedef void (*cn_sequence_done_fn)(void *ctx, json_t *value, const struct cn_error *err);

/* Deletes a sequence, live or stored; answers when a worker has done it. Saying it twice is no
 * error. */
void cn_sequence_remove(struct cn_management *management, const char *name, const char *version,
                        const char *id, cn_sequence_done_fn done, void *ctx);

/* Which sequences a list shows: those that the server has open, all that are open and may be on
 * disk only, those that are closed and still remembered, or both. */
enum cn_sequence_which {
    CN_SEQUENCES_LIVE,
    CN_SEQUENCES_OPEN,
    CN_SEQUENCES_CLOSED,
    CN_SEQUENCES_ALL
};
/* "live" "open" "closed" "all"; -1 otherwise. */
int cn_sequence_which_parse(const char *word);

struct cn_sequence_list {
    const char *prefix; /* of ids; NULL: any */
    const char *token;  /* of the page before; NULL: the first page */
    uint64_t min_idle_ms;
    uint32_t limit; /* sequences of a page; a page may have fewer and still not be the last */
    enum cn_sequence_which which;
};
/* A page of sequences and, if there may be more, nextPageToken. */
void cn_sequence_list(struct cn_management *management, const char *name, const char *version,
                      const struct cn_sequence_list *list, cn_sequence_done_fn done, void *ctx);

/* All that is known of one sequence; a closed one shows why. */
void cn_sequence_show(struct cn_management *management, const char *name, const char *version,
                      const char *id, cn_sequence_done_fn done, void *ctx);

/* `bytes` (borrowed until return): an envelope (exported_sequence.h), or NULL and what was
 * wrong. */
typedef void (*cn_sequence_export_fn)(void *ctx, const struct cn_str *bytes,
                                      const struct cn_error *err);
/* An open sequence as its last committed step left it. */
void cn_sequence_export(struct cn_management *management, const char *name, const char *version,
                        const char *id, cn_sequence_export_fn done, void *ctx);

/* Writes an envelope's sequence under `id`, as a new generation whose clocks begin now. `bytes`
 * stay valid until done. `replace`: also onto an open sequence, which is closed by it. `any_model`:
 * also one that was exported from a model of another name. */
struct cn_sequence_import {
    struct cn_str bytes;
    bool replace, any_model;
};
void cn_sequence_import(struct cn_management *management, const char *name, const char *version,
                        const char *id, const struct cn_sequence_import *import,
                        cn_sequence_done_fn done, void *ctx);

/* Copies an open sequence onto `to`, which must not be open. */
void cn_sequence_fork(struct cn_management *management, const char *name, const char *version,
                      const char *id, const char *to, cn_sequence_done_fn done, void *ctx);

#endif
