/* proto/body_memory.h - memory that the server and one worker share, through which large bodies
 * pass.
 *
 * A body that goes through the socket is copied twice by the kernel. From CN_BODY_MEMORY_MIN_BYTES
 * on its sender copies it into the body memory instead, and the frame only says where it lies. A
 * worker's handler writes its output there in the first place. The worker uses what the server has
 * written where it lies. The server copies what the worker has written before it looks at it,
 * because a worker may change it at any time.
 *
 * The memory has two halves, one for each direction, and marks before them:
 *
 *   marks      2 x CN_BODY_SLOTS u32: which bodies are read; the reader of a half sets them
 *   half 0     bodies for the worker; only the server puts something there
 *   half 1     bodies for the server; only the worker puts something there
 *
 * The writer of a half keeps its list of what is where in memory of its own, so the other side can
 * only harm what is in the memory, never the list. Each body has a slot and a number. The reader
 * sets the slot's mark to the number when it no longer needs the body, and the writer then uses its
 * place again. When a body finds no place, it goes through the socket like a small one. The memory
 * has no name in any file system, so nothing stays behind when both processes are gone.
 *
 * Each side uses its end from one thread. */
#ifndef CN_PROTO_BODY_MEMORY_H
#define CN_PROTO_BODY_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/text/str.h"

/* From this size on a body goes through the body memory. */
#define CN_BODY_MEMORY_MIN_BYTES 65536
/* The most bodies of one direction that are there at a time. */
#define CN_BODY_SLOTS 64
/* Each body begins at a multiple of this many bytes, which suits every element of a tensor. */
#define CN_BODY_ALIGNMENT 64

struct cn_body_memory;

/* Where a body lies in its half. A frame carries these fields. */
struct cn_body_place {
    uint32_t slot;
    uint32_t number; /* of the body; 1 or more */
    uint64_t at;     /* bytes from the beginning of the half */
    uint32_t bytes;
};

/* Is a body of this size worth being put there? Never with the tuning `body-memory` off. */
bool cn_body_memory_pays(size_t bytes);

/* The server's end: makes memory with two halves of `half_bytes`, and a descriptor for the worker,
 * which the caller closes. The descriptor's size cannot be changed, so no access can fail later.
 * Returns 0 or CN_E_UNAVAILABLE. */
int cn_body_memory_create(uint64_t half_bytes, struct cn_body_memory **out, int *fd,
                          struct cn_error *err);
/* The worker's end; takes `fd`, also if it fails. Returns 0, CN_E_UNAVAILABLE, or CN_E_PROTOCOL if
 * the descriptor has another size. */
int cn_body_memory_open(int fd, uint64_t half_bytes, struct cn_body_memory **out,
                        struct cn_error *err);
/* Unmaps this side's end; NULL does nothing. What the other side has mapped stays. */
void cn_body_memory_free(struct cn_body_memory *memory);

/* Copies `bytes` into this side's half. Bytes that a buffer has written there stay where they are,
 * and that buffer must disown them then. Returns false when no place is free. */
bool cn_body_memory_put(struct cn_body_memory *memory, struct cn_str bytes,
                        struct cn_body_place *out);
/* The allocator of buffers in which bodies are written that are to be put: their memory is in this
 * side's half. The buffers must have another one before the memory is freed. */
struct cn_buf_allocator *cn_body_memory_allocator(struct cn_body_memory *memory);
/* Does a buffer with memory from this allocator begin at `at`? */
bool cn_body_memory_is_written(const struct cn_body_memory *memory, const char *at);
/* Finds a body that the other side says it has put. *out stays valid until _release. Returns false
 * when the place is not one: outside of the half, or its slot is in use. */
bool cn_body_memory_find(struct cn_body_memory *memory, const struct cn_body_place *place,
                         struct cn_str *out);
/* Does `at` point into the other side's half? NULL has no half. */
bool cn_body_memory_has(const struct cn_body_memory *memory, const char *at);
/* Tells the other side that the body that begins at `at`, as _find returned it, is read. Does
 * nothing if there is none. */
void cn_body_memory_release(struct cn_body_memory *memory, const char *at);

/* Gives the pages of this side's half back to the system if no body has passed in either direction
 * since the last call, and all that this side has put there is read. Call it every few seconds.
 * Returns false when nothing is left to give back, and no body has passed since the last call. */
bool cn_body_memory_trim(struct cn_body_memory *memory);

#endif
