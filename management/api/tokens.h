/* management/api/tokens.h - the keys that callers must show, as TorchServe has them.
 *
 * Three keys: one for the inference API, one for the management API, and one ("API") that makes the
 * other two anew. The first two expire. All stand in a file that only the server's user may read.
 * HTTP and gRPC ask the same function, which takes no lock.
 */
#ifndef CN_MANAGEMENT_API_TOKENS_H
#define CN_MANAGEMENT_API_TOKENS_H

#include <stdint.h>

#include "core/errors/error.h"
#include "core/loop/file_thread.h"
#include "core/text/str.h"

struct cn_tokens;

enum cn_token_kind { CN_TOKEN_INFERENCE, CN_TOKEN_MANAGEMENT, CN_TOKEN_API, CN_N_TOKENS };

/* Makes the keys and writes them to `path`, for its owner alone. `lifetime_ms`: until a key
 * expires, but for the API key. CN_E_CONFIG when the file can't be written. Main thread, at start.
 */
int cn_tokens_create(const char *path, uint64_t lifetime_ms, struct cn_tokens **out,
                     struct cn_error *err);
/* Leaves the file. NULL is allowed. */
void cn_tokens_destroy(struct cn_tokens *tokens);

/* Any thread. `authorization`: "Bearer KEY", of an Authorization header or gRPC's metadata
 * "authorization"; empty: there is none. CN_E_TOKEN with TorchServe's words. Takes the same time
 * for every wrong key. */
int cn_tokens_check(const struct cn_tokens *tokens, enum cn_token_kind kind,
                    struct cn_str authorization, struct cn_error *err);

/* A key is made anew: in the file first, then in use. Embedded in what waits for it. */
struct cn_token_renewal {
    struct cn_file_task task;
    struct cn_tokens *tokens;
    enum cn_token_kind kind; /* inference or management */
    uint64_t key, expires_wall_ms;
    char text[512];      /* of the file */
    struct cn_error err; /* code 0: done */
    void (*on_done)(struct cn_token_renewal *renewal);
};
/* Loop 0. One at a time: CN_E_CONFLICT at once for another, otherwise on_done comes later. */
int cn_tokens_renew(struct cn_tokens *tokens, struct cn_file_thread *files,
                    struct cn_token_renewal *renewal, struct cn_error *err);

#endif
