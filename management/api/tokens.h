/* management/api/tokens.h - the keys that callers must show, as TorchServe has them.
 *
 * There are three keys: one for the inference API, one for the management API, and one ("API") with
 * which the other two are made anew. The first two expire. All of them are in a file that only the
 * server's user may read. HTTP and gRPC use the same check, which takes no lock.
 */
#ifndef CN_MANAGEMENT_API_TOKENS_H
#define CN_MANAGEMENT_API_TOKENS_H

#include <stdint.h>

#include "core/errors/error.h"
#include "core/loop/file_thread.h"
#include "core/text/str.h"

struct cn_tokens;

enum cn_token_kind { CN_TOKEN_INFERENCE, CN_TOKEN_MANAGEMENT, CN_TOKEN_API, CN_N_TOKENS };

/* Makes the keys and writes them to `path`, which only its owner can read. `lifetime_ms`: time
 * until a key expires; the API key never does. CN_E_CONFIG if the file cannot be written. Main
 * thread, at start. */
int cn_tokens_create(const char *path, uint64_t lifetime_ms, struct cn_tokens **out,
                     struct cn_error *err);
/* Frees the keys and leaves the file. NULL is allowed. */
void cn_tokens_destroy(struct cn_tokens *tokens);

/* Any thread: checks a key. `authorization`: "Bearer KEY", from an Authorization header or gRPC's
 * metadata "authorization"; empty if there is none. CN_E_TOKEN with TorchServe's text. Every wrong
 * key takes the same time. */
int cn_tokens_check(const struct cn_tokens *tokens, enum cn_token_kind kind,
                    struct cn_str authorization, struct cn_error *err);

/* A new key is being made: first in the file, then in use. Embedded in the struct that waits for
 * it. */
struct cn_token_renewal {
    struct cn_file_task task;
    struct cn_tokens *tokens;
    enum cn_token_kind kind; /* inference or management */
    uint64_t key, expires_wall_ms;
    char text[512];      /* text of the file */
    struct cn_error err; /* code 0: done */
    void (*on_done)(struct cn_token_renewal *renewal);
};
/* Loop 0: makes a new key. If another one is being made: CN_E_CONFLICT at once; else on_done comes
 * later. */
int cn_tokens_renew(struct cn_tokens *tokens, struct cn_file_thread *files,
                    struct cn_token_renewal *renewal, struct cn_error *err);

#endif
