/* management/environments/environment_recipe.h - what an environment is made from, and its digest.
 * File thread.
 *
 * The recipe is a text: what the interpreter says of itself, and the SHA-256 of the requirements
 * file, of all files to which it refers, and of all files under wheels/. Two models with the same
 * recipe share one environment. The digest is the SHA-256 of the recipe.
 */
#ifndef CN_MANAGEMENT_ENVIRONMENTS_ENVIRONMENT_RECIPE_H
#define CN_MANAGEMENT_ENVIRONMENTS_ENVIRONMENT_RECIPE_H

#include "core/errors/error.h"
#include "core/memory/buf.h"

/* A digest in hexadecimal digits, with its NUL. */
#define CN_ENVIRONMENT_DIGEST_BYTES 65
/* The folder of an archive with packages that are installed without an index. */
#define CN_ENVIRONMENT_WHEELS "wheels"

/* Appends the recipe for the file `requirements` in the model's folder `dir`. `interpreter`: what
 * the interpreter says of itself, one line. CN_E_INVALID_MODEL: a file is too large, or there are
 * too many; CN_E_IO: one cannot be read. */
int cn_environment_recipe(const char *dir, const char *requirements, const char *interpreter,
                          struct cn_buf *out, struct cn_error *err);
void cn_environment_digest(struct cn_str recipe, char digest[CN_ENVIRONMENT_DIGEST_BYTES]);

#endif
