/* tests/fuzz/body_memory.h - memory in which the bodies of a frame may lie, for the targets that
 * decode frames. */
#ifndef CN_FUZZ_BODY_MEMORY_H
#define CN_FUZZ_BODY_MEMORY_H

#include <unistd.h>

#include "core/errors/panic.h"
#include "proto/body_memory.h"

/* Small, so that many of the places that a fuzzer writes are in it. */
#define FUZZ_HALF_BYTES 65536

static inline struct cn_body_memory *
fuzz_memory(void)
{
    struct cn_body_memory *memory;
    struct cn_error err;
    int fd;

    cn_assert(cn_body_memory_create(FUZZ_HALF_BYTES, &memory, &fd, &err) == 0);
    close(fd);
    return memory;
}

/* Reads all bytes of a body that lies there, and releases it. */
static inline void
fuzz_read_placed(struct cn_body_memory *memory, struct cn_str body)
{
    unsigned sum = 0;

    if (!cn_body_memory_has(memory, body.ptr))
        return;
    for (size_t i = 0; i < body.len; i++)
        sum += (unsigned char)body.ptr[i];
    cn_assert(sum <= 255 * body.len); /* so that the bytes are read */
    cn_body_memory_release(memory, body.ptr);
}

#endif
