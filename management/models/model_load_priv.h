/* management/models/model_load_priv.h - what model_load.c and model_settings.c share. File thread.
 */
#ifndef CN_MANAGEMENT_MODELS_MODEL_LOAD_PRIV_H
#define CN_MANAGEMENT_MODELS_MODEL_LOAD_PRIV_H

#include "management/models/model_load.h"

/* Checks that a file that the manifest names is inside the model's folder and exists. `what` is
 * used in the message. */
int cn_model_check_file(const struct cn_model_about *about, const char *what, const char *file,
                        struct cn_error *err);
bool cn_model_is_python(const struct cn_model_about *about);
/* Does the runtime run models without a handler? */
bool cn_model_runs_models(const char *runtime);

/* model_settings.c: makes about->config and about->io from all sources of settings. */
int cn_model_make_config(struct cn_model_about *about, const struct cn_model_request *request,
                         const struct cn_server_config *server, bool at_startup,
                         struct cn_error *err);

#endif
