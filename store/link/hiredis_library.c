/* store/link/hiredis_library.c - finds the functions of hiredis.
 *
 * Only the reader of replies is used. Commands are simple to write, and the connection is ours,
 * because every wait must be bounded. The library must have the version of the header, because the
 * layout of a reply has changed between versions. */
#include "store/link/hiredis_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define LIBRARY "libhiredis.so." TEXT(HIREDIS_SONAME)

static struct cn_hiredis opened;
static bool is_open;

static bool
take(void *library, const char *name, void *out)
{
    void *function = dlsym(library, name);

    memcpy(out, &function, sizeof(function)); /* ISO C has no cast for it */
    return function != NULL;
}

/* The caller holds the lock. */
static int
open_library(struct cn_error *err)
{
    void *library;

    if (is_open)
        return 0;
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return cn_fail(err, CN_E_STATE_STORE,
                       "a shared state store needs " LIBRARY ", which cannot be loaded (%s); on "
                       "Debian the package libhiredis" TEXT(HIREDIS_SONAME) " has it",
                       dlerror());
    if (!take(library, "redisReaderCreate", &opened.create) ||
        !take(library, "redisReaderFree", &opened.destroy) ||
        !take(library, "redisReaderFeed", &opened.feed) ||
        !take(library, "redisReaderGetReply", &opened.reply) ||
        !take(library, "freeReplyObject", &opened.free_reply)) {
        dlclose(library);
        return cn_fail(err, CN_E_STATE_STORE, LIBRARY " lacks functions of hiredis");
    }
    is_open = true;
    return 0;
}

int
cn_hiredis_open(const struct cn_hiredis **out, struct cn_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int rc;

    *out = &opened;
    pthread_mutex_lock(&lock);
    rc = open_library(err);
    pthread_mutex_unlock(&lock);
    return rc;
}
