/* management/models/python_models.h - Python models: what kind they are, and which interpreter runs
 * them. Any thread. */
#ifndef CN_MANAGEMENT_MODELS_PYTHON_MODELS_H
#define CN_MANAGEMENT_MODELS_PYTHON_MODELS_H

#include <stdbool.h>

#include "config/yaml/yaml.h"
#include "core/errors/error.h"

/* Is it the name of a Python handler: "handler.py", "handler.py:Class", or one of TorchServe's own,
 * "image_classifier"? `runtime` is the manifest's word, which may be NULL. */
bool cn_is_python_handler(const char *handler, const char *runtime);
/* Returns the value of the key `python` of a model's YAML, to be freed; NULL if it has none. `doc`
 * may be NULL. */
char *cn_python_wanted(struct cn_yaml_doc *doc);

/* Finds the interpreter, absolute: the first of these that is not NULL: `wanted` by the model,
 * relative to its folder `dir`; `by_option` by the server's option; python3 in PATH. Also finds the
 * folder with the package that the worker runs. Both are to be freed. CN_E_INVALID_MODEL says what
 * is missing and where to name it. */
int cn_python_find(const char *wanted, const char *dir, const char *by_option, char **python,
                   char **package, struct cn_error *err);

#endif
