/* core/system/random.h - random bytes from the kernel, fetched in pages. Per thread, no lock. */
#ifndef CN_CORE_SYSTEM_RANDOM_H
#define CN_CORE_SYSTEM_RANDOM_H

#include <stddef.h>
#include <stdint.h>

void cn_random_bytes(void *out, size_t len);
/* In the child of a fork: the calling thread's page is the parent's, which gives out the same
 * bytes; the next call fetches a new one. */
void cn_random_forget(void);
uint64_t cn_random_u64(void);
/* A random UUID (version 4) in lower case with its NUL: 37 bytes. */
void cn_random_uuid(char out[37]);

#endif
