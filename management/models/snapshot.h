/* management/models/snapshot.h - TorchServe's configuration snapshots: written at changes, restored
 * at start.
 *
 * A snapshot is config.properties as it was, with the models as they are now in the key
 * model_snapshot. Only the program `torchserve` has them (config->snapshot_dir). Loop 0; the file
 * thread writes.
 */
#ifndef CN_MANAGEMENT_MODELS_SNAPSHOT_H
#define CN_MANAGEMENT_MODELS_SNAPSHOT_H

#include "core/containers/list.h"
#include "core/errors/error.h"

struct cn_management;
struct cn_server_config;

/* Checks that the archives of the snapshot that is to be restored exist. CN_E_CONFIG names the
 * first that is missing. It reads the disk, so it is for the start only. */
int cn_snapshot_check(const struct cn_server_config *config, struct cn_error *err);

/* Something has changed: writes a snapshot soon, one for many changes that come together. Nothing
 * is written before the models of the start are up. */
void cn_snapshot_changed(struct cn_management *management);
/* All models of the start are up: writes the first snapshot. */
void cn_snapshot_started(struct cn_management *management);
/* A caller whose change must be on the disk before it is answered, as in TorchServe. */
struct cn_snapshot_wait {
    struct cn_list link;
    void (*done)(struct cn_snapshot_wait *wait);
};
/* Calls done() when the changes so far are written or cannot be written; at once if there is
 * nothing to write. */
void cn_snapshot_wait(struct cn_management *management, struct cn_snapshot_wait *wait);
/* The server stops: writes the models as they are before they go. A drain waits for it. */
void cn_snapshot_stopping(struct cn_management *management);

#endif
