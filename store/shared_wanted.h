/* store/shared_wanted.h - the models that all nodes of a shared store are to serve, as one text in
 * the store, and what each node says of how far it is.
 *
 * The text is replaced by conditional writes: a writer names the version that it has seen, and the
 * store takes the write only if that is still the present one. A version is a token,
 * GENERATION-RANDOM; the generation counts up by one with each write. The store does not read the
 * text. One thread at a time for each link. */
#ifndef CN_STORE_SHARED_WANTED_H
#define CN_STORE_SHARED_WANTED_H

#include "core/memory/buf.h"
#include "store/shared_link.h"

#define CN_WANTED_TOKEN_MAX 48
#define CN_WANTED_NONE "0" /* the token while nobody has written a text */
#define CN_WANTED_TEXT_MAX (1u << 20)

/* The generation of a token. */
uint64_t cn_wanted_generation(const char *token);

struct cn_wanted_look {
    const char *known; /* token of the text that the caller has; "": it has none */
    /* If `node` is not NULL, the report replaces what this node has said before. */
    const char *node;
    struct cn_str report;
    /* Results: the present token; and the text, unless the caller has it. */
    char token[CN_WANTED_TOKEN_MAX];
    bool is_new;
    struct cn_buf text; /* the caller has begun it with cn_buf_init */
};
int cn_shared_wanted_look(struct cn_shared_link *link, struct cn_wanted_look *look,
                          struct cn_error *err);

/* Replaces the text if the present token is still `seen`. The new generation is at least `least`.
 * *written: it was; then `token` is the new one. CN_E_STORE_UNREACHABLE: it may have been
 * written. */
int cn_shared_wanted_write(struct cn_shared_link *link, const char *seen, uint64_t least,
                           struct cn_str text, bool *written, char token[CN_WANTED_TOKEN_MAX],
                           struct cn_error *err);

/* Called for each node's report, with the time since it was written by the store's clock. */
typedef void (*cn_wanted_report_fn)(void *ctx, struct cn_str node, uint64_t age_ms,
                                    struct cn_str report);
/* Reads the reports, and forgets those that are older than `forget_ms`. */
int cn_shared_wanted_reports(struct cn_shared_link *link, uint64_t forget_ms,
                             cn_wanted_report_fn on_report, void *ctx, struct cn_error *err);
/* Removes this node's report. */
int cn_shared_wanted_leave(struct cn_shared_link *link, const char *node, struct cn_error *err);

#endif
