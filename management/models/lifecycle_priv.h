/* management/models/lifecycle_priv.h - what the files that open and close versions share. */
#ifndef CN_MANAGEMENT_MODELS_LIFECYCLE_PRIV_H
#define CN_MANAGEMENT_MODELS_LIFECYCLE_PRIV_H

#include "management/management_priv.h"
#include "management/models/lifecycle.h"

struct cn_close_call {
    int code;             /* jobs are refused with it ... */
    const char *reason;   /* ... and this; copied */
    bool drop_waiting;    /* refuse the jobs that wait; else they still run */
    bool close_sequences; /* sequences are closed with the reason "unloaded" */
    bool everywhere;      /* also those in a shared store, because all nodes close the version */
    bool delete_store;
    bool delete_archive; /* delete the archive if it was downloaded */
};
/* Takes a version that is up out of the registry and the views, ends its queue and workers, deletes
 * what was unpacked (not with CN_E_DRAINING: the next start uses it), and frees the version; then
 * `on_done(ctx)`, which may be NULL. It counts as an operation. */
void cn_version_close(struct cn_management *management, struct cn_version *version,
                      const struct cn_close_call *call, void (*on_done)(void *ctx), void *ctx);

/* Prepares the retire_timer of a version that is being made. */
void cn_lifecycle_init_retiring(struct cn_management *management, struct cn_version *version);

/* Tells the version's queue its swap policy and whether it is retired. */
void cn_swap_tell_queue(const struct cn_version *version);
/* The version is the default again: it is not to be retired any more. The queue is not told. */
void cn_swap_take_back(struct cn_version *version);
/* A version has become the default because the one before it goes. It must not be retired any more,
 * and its queue is told. With `for_now`, the one before it is being reloaded and takes its place
 * again, so a deadline that still runs stays. */
void cn_swap_default_again(struct cn_version *version, bool for_now);

/* Frees a version that is in no list and has no pool. */
void cn_version_free(struct cn_version *version);

#endif
