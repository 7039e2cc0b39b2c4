/* management/models/trial.h - can this archive's handler be loaded at all? Loop 0.
 *
 * A version that is to replace one with the same number is tried first: one worker loads the model
 * beside the old version, without a store, and ends again. The old version serves until that has
 * succeeded.
 */
#ifndef CN_MANAGEMENT_MODELS_TRIAL_H
#define CN_MANAGEMENT_MODELS_TRIAL_H

#include "management/models/model_load.h"

struct cn_management;

/* `err` NULL: it can be loaded. CN_E_DRAINING: the server is stopping. */
typedef void (*cn_trial_done_fn)(void *ctx, const struct cn_error *err);

/* Tries an archive. It counts as an operation. The request's strings stay the caller's and valid
 * until `done`, which is called once and never from inside. */
void cn_trial_run(struct cn_management *management, const struct cn_model_request *request,
                  cn_trial_done_fn done, void *ctx);
/* A drain begins: the trials that run are ended soon. */
void cn_trial_stop_all(struct cn_management *management);

#endif
