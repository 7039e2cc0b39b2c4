/* core/system/random.h - random bytes from the kernel, which each thread gets a page at a time. Any
 * thread, no lock. */
#ifndef CN_CORE_SYSTEM_RANDOM_H
#define CN_CORE_SYSTEM_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Fills `out` with random bytes that are good enough for keys. Panics if the kernel has none. */
void cn_random_bytes(void *out, size_t len);
/* Call this in the child of a fork: the page of the calling thread is a copy of the parent's, which
 * will give out the same bytes. The next call gets a new one. */
void cn_random_forget(void);
uint64_t cn_random_u64(void);
/* Writes a random UUID (version 4) in lower case with a NUL, 37 bytes. */
void cn_random_uuid(char out[37]);

#endif
