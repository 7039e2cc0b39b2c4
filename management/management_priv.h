/* management/management_priv.h - what the files of management share. Loop 0 unless a comment says
 * otherwise.
 */
#ifndef CN_MANAGEMENT_MANAGEMENT_PRIV_H
#define CN_MANAGEMENT_MANAGEMENT_PRIV_H

#include <stdatomic.h>

#include "core/loop/file_thread.h"
#include "management/environments/environments.h"
#include "management/management.h"
#include "management/models/registry.h"
#include "management/models/snapshot.h"
#include "management/models/url_rules.h"
#include "management/state/health_reasons.h"
#include "management/state/state_dir.h"
#include "management/state/stores.h"

struct cn_management {
    const struct cn_server_config *config;
    struct cn_loop *const *loops;
    unsigned n_loops;
    struct cn_loop *home; /* loops[0] */
    struct cn_file_thread *files, *downloaders;
    struct cn_environments *environments; /* NULL: the server installs no packages */
    struct cn_url_rules *url_rules;
    struct cn_cluster *cluster;   /* NULL: this server has models of its own */
    struct cn_model_cache *cache; /* NULL: the model store is a folder */
    struct cn_list downloads;     /* struct cn_download, under way */
    unsigned n_downloads;
    struct cn_state_dir *state;
    struct cn_stores *stores;
    struct cn_tokens *tokens; /* NULL: token-auth is off */
    struct cn_keys *keys;     /* the named keys; NULL: there are none */
    struct cn_registry *registry;
    struct cn_health health; /* reasons to be unhealthy other than missing workers */
    struct cn_repository *repository;
    struct cn_nodes *nodes; /* NULL: the server has no shared store */
    struct cn_list trials;  /* struct cn_trial, under way */
    char *worker_program;
    _Atomic uint32_t next_worker_id; /* any loop */
    atomic_bool draining;            /* any loop reads it */
    unsigned n_versions_made;        /* gives each version its loop in turn */
    unsigned operations;             /* calls that have not answered yet; a drain waits for them */

    /* Drain. */
    bool drained, hurried;
    struct cn_timer drain_timer;
    uint64_t drain_end_ms;
    bool streams_told; /* handlers that stream were asked to end their streams */
    void (*on_drained)(void *ctx);
    void *drained_ctx;

    /* Snapshots: one is being written; a change came meanwhile, which needs another one. */
    bool snapshot_busy, snapshot_again;
    struct cn_list snapshot_waits,
        snapshot_waits_next; /* struct cn_snapshot_wait: for this one, for the next one */
    struct cn_snapshot_wait start_wait;

    /* Start. */
    atomic_bool started; /* any loop reads it: a model that is not there now was never asked for */
    /* any loop reads it: all models of the command line are in the views, or marked there as
     * coming */
    atomic_bool all_reserved;
    unsigned unreserved; /* models of the command line whose name and version are not known */
    unsigned starting, failed;
    void (*on_started)(void *ctx, unsigned failed);
    void *started_ctx;
    char first_failure[CN_ERROR_MESSAGE_MAX];
};

/* A version was registered, so the server is no longer unready because it is missing. */
void cn_management_model_came(struct cn_management *management, const struct cn_model_about *about);
/* Finds a version like cn_registry_find(). While the server starts, an unknown one is
 * CN_E_MODEL_LOADING. `err` may be NULL. */
struct cn_version *cn_management_find_version(struct cn_management *management, const char *name,
                                              const char *version, struct cn_error *err);

/* startup_models.c: sets or clears the reason to be unhealthy that the server is starting. */
void cn_management_set_starting(struct cn_management *management, bool starting);
/* A model of the command line is in the registry now, or will never be. */
void cn_management_reserved(struct cn_management *management);
/* The start is not over before the hold is released. */
void cn_management_start_hold(struct cn_management *management);
void cn_management_start_release(struct cn_management *management);
/* For the queues: struct cn_family, ctx is the management. */
int cn_management_version_at(void *ctx, struct cn_str name, unsigned i, struct cn_model_queue **out,
                             struct cn_error *err);

/* An operation begins, and ends. The last one that ends lets a drain finish. */
void cn_management_op_begin(struct cn_management *management);
void cn_management_op_end(struct cn_management *management);
/* Ends the drain if no operation is left. For cn_call_on; `ctx` is the management. */
void cn_management_check_drained(void *ctx);

#endif
