/* core/memory/mem.c - malloc with this project's rules. Any thread.
 *
 * cn_alloc is for small things of fixed size, such as structs: it gives zeroed memory and ends the
 * process if there is none, because no caller could do anything useful then. cn_try_alloc is for
 * sizes that come from outside, directly or not: it may return NULL, and its caller answers with an
 * error. Sizes of 0 are allowed everywhere, so that empty lists need no special case. */
#include "core/memory/mem.h"

#include <stdlib.h>
#include <string.h>

#include "core/errors/panic.h"

void *
cn_alloc(size_t bytes)
{
    void *ptr = calloc(1, bytes ? bytes : 1);

    if (!ptr)
        cn_panic(__FILE__, __LINE__, "out of memory: %zu bytes could not be allocated", bytes);
    return ptr;
}

void *
cn_try_alloc(size_t bytes)
{
    return malloc(bytes ? bytes : 1);
}

void *
cn_try_realloc(void *ptr, size_t bytes)
{
    return realloc(ptr, bytes ? bytes : 1);
}

char *
cn_strndup(const char *text, size_t len)
{
    char *copy;

    cn_assert(len < SIZE_MAX);
    copy = cn_try_alloc(len + 1);
    if (!copy)
        cn_panic(__FILE__, __LINE__, "out of memory: %zu bytes could not be allocated", len + 1);
    if (len)
        memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

char *
cn_strdup(const char *text)
{
    return cn_strndup(text, strlen(text));
}

void
cn_free(void *ptr)
{
    free(ptr);
}
