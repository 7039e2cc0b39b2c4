/* access/key_limits.h - the limits of a key as texts: in the key file, on a command line, in a
 * table. Any thread. */
#ifndef CN_ACCESS_KEY_LIMITS_H
#define CN_ACCESS_KEY_LIMITS_H

#include <stdbool.h>

#include "access/account.h"
#include "core/memory/buf.h"

struct cn_yaml;

/* The members of a key that are limits, in the order in which they are shown. */
#define CN_N_KEY_LIMITS 5
/* The name of a limit: "rate", "burst", "concurrency", "maxNumSequence", "storedBytes". */
const char *cn_key_limit_name(unsigned i);
uint64_t cn_key_limit_get(const struct cn_key_limits *limits, unsigned i);

/* Reads the member `node` of the key file. CN_E_CONFIG with name, line and column. */
int cn_key_limit_take(const char *file, const struct cn_yaml *node, struct cn_key_limits *limits,
                      struct cn_error *err);
/* Reads the limit number `i` from a flag's text. CN_E_CONFIG. */
int cn_key_limit_read(unsigned i, const char *flag, const char *text, struct cn_key_limits *limits,
                      struct cn_error *err);
/* A burst says nothing without a rate: CN_E_CONFIG, whose message begins with `where`. */
int cn_key_limits_check(const char *where, const struct cn_key_limits *limits,
                        struct cn_error *err);
/* Appends each limit that is set as `, "rate": 50`. */
void cn_key_limits_write_json(const struct cn_key_limits *limits, struct cn_buf *out);
/* Appends "rate 50, burst 100", or "none". */
void cn_key_limits_show(const struct cn_key_limits *limits, struct cn_buf *out);

#endif
