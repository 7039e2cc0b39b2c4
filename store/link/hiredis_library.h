/* store/link/hiredis_library.h - the functions of hiredis that we use. The library is opened with
 * the first shared store, so a process without a shared store never loads it. In the server, the
 * main thread opens it before other threads use it. */
#ifndef CN_STORE_LINK_HIREDIS_LIBRARY_H
#define CN_STORE_LINK_HIREDIS_LIBRARY_H

#include <hiredis/hiredis.h>

#include "core/errors/error.h"

/* The functions have the names and types that <hiredis/read.h> gives them. */
struct cn_hiredis {
    redisReader *(*create)(void);
    void (*destroy)(redisReader *reader);
    int (*feed)(redisReader *reader, const char *bytes, size_t len);
    int (*reply)(redisReader *reader, void **reply);
    void (*free_reply)(void *reply);
};

/* Opens the library once per process. CN_E_STATE_STORE: it is not installed. */
int cn_hiredis_open(const struct cn_hiredis **out, struct cn_error *err);

#endif
