/* management/models/lifecycle_priv.h - shared by register.c and lifecycle.c only. */
#ifndef CN_MANAGEMENT_MODELS_LIFECYCLE_PRIV_H
#define CN_MANAGEMENT_MODELS_LIFECYCLE_PRIV_H

#include "management/management_priv.h"
#include "management/models/lifecycle.h"

struct cn_close_call {
    int code;             /* jobs are refused with it ... */
    const char *reason;   /* ... and this; copied */
    bool drop_waiting;    /* or let what waits still run */
    bool close_sequences; /* handlers hear that they were unloaded */
    bool delete_store;
    bool delete_archive; /* one that was downloaded */
};
/* Takes a version that is up out of the registry and the views, ends its queue and workers, deletes
 * what was unpacked (not with CN_E_DRAINING: the next start does), frees the version; then
 * `on_done(ctx)` (may be NULL). An operation. */
void cn_version_close(struct cn_management *management, struct cn_version *version,
                      const struct cn_close_call *call, void (*on_done)(void *ctx), void *ctx);

/* A version that is being made: its retire_timer. */
void cn_lifecycle_init_retiring(struct cn_management *management, struct cn_version *version);

/* In no list, without a pool. */
void cn_version_free(struct cn_version *version);

#endif
