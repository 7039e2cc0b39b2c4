/* management/repository/model_index.h - the list of the archives in an http(s) model store.
 *
 * A web server cannot be asked what lies in a folder, so the operator puts a file index.json there:
 * {"models": ["counter.mar", {"file": "speech.mar", "sha256": "<64 hexadecimal digits>"}]}
 */
#ifndef CN_MANAGEMENT_REPOSITORY_MODEL_INDEX_H
#define CN_MANAGEMENT_REPOSITORY_MODEL_INDEX_H

#include <stdint.h>

#include "core/errors/error.h"
#include "core/text/str.h"

#define CN_MODEL_INDEX_FILE "index.json"
#define CN_MODEL_INDEX_BYTES_MAX (1u << 20)
#define CN_MODEL_INDEX_MAX 10000

struct cn_model_index {
    uint32_t n;
    struct cn_model_index_entry {
        char *file;      /* a path below the index, without ".." */
        char digest[65]; /* its SHA-256 in small letters; "": the index does not say */
    } * entries;
};

/* Reads an index. CN_E_CONFIG says what is wrong; `out` is then empty. The caller ends it with
 * cn_model_index_fini(). */
int cn_model_index_parse(struct cn_str text, struct cn_model_index *out, struct cn_error *err);
void cn_model_index_fini(struct cn_model_index *index);

/* Reads a SHA-256 in hexadecimal digits, which something else may follow after a space, as
 * sha256sum writes it. False: the text does not begin with one. */
bool cn_digest_parse(struct cn_str text, char digest[65]);

#endif
