/* proto/body_memory.c - the two ends of body memory. Each is used from one thread.
 *
 * Places are found first-fit from the beginning of the half, so that the pages in use stay few. The
 * list of bodies is short (CN_BODY_SLOTS) and in the order of their places. A place is either put
 * already, or a buffer's that is still being written. */
#include "proto/body_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/containers/list.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/tuning/tuning.h"

#define MARKS_BYTES 65536 /* whole pages, also where a page has 16 or 64 KiB */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

struct cn_body_memory {
    char *map;
    size_t half_bytes; /* a multiple of the page size */
    unsigned own;      /* the half into which this side puts: 0 for the server, 1 for the worker */

    /* This side's half. */
    struct cn_buf_allocator allocator;
    struct cn_body_place used[CN_BODY_SLOTS]; /* by their places */
    uint32_t n_used;
    uint64_t written; /* a bit for each slot: a buffer's, not put yet */
    uint32_t number;  /* of the body that was put last */
    uint64_t touched; /* bytes from the beginning that may have pages */
    bool idle;        /* no body has passed since the last trim */

    /* The other side's half: bodies that were found and are not released, by their slots. */
    struct {
        uint32_t number; /* 0: the slot is free */
        const char *at;
    } found[CN_BODY_SLOTS];
    uint32_t n_found;
};

_Static_assert(2 * CN_BODY_SLOTS * sizeof(_Atomic uint32_t) <= MARKS_BYTES, "the marks have room");

bool
cn_body_memory_pays(size_t bytes)
{
    return bytes >= CN_BODY_MEMORY_MIN_BYTES && bytes < UINT32_MAX &&
           cn_tuned(CN_TUNING_BODY_MEMORY);
}

static _Atomic uint32_t *
mark(const struct cn_body_memory *memory, unsigned half, uint32_t slot)
{
    return (_Atomic uint32_t *)memory->map + half * CN_BODY_SLOTS + slot;
}

static char *
half(const struct cn_body_memory *memory, unsigned which)
{
    return memory->map + MARKS_BYTES + which * memory->half_bytes;
}

static size_t
map_bytes(uint64_t half_bytes)
{
    return MARKS_BYTES + 2 * (size_t)half_bytes;
}

static uint64_t
whole_pages(uint64_t bytes)
{
    return (bytes + MARKS_BYTES - 1) / MARKS_BYTES * MARKS_BYTES;
}

static char *take_room(struct cn_buf_allocator *allocator, size_t bytes);
static void give_room_back(struct cn_buf_allocator *allocator, char *data);

/* Maps the memory behind `fd`. */
static struct cn_body_memory *
map(int fd, uint64_t half_bytes, unsigned own, struct cn_error *err)
{
    void *at = mmap(NULL, map_bytes(half_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct cn_body_memory *memory;

    if (at == MAP_FAILED) {
        cn_fail_sys(err, CN_E_UNAVAILABLE, errno, "cannot map %zu bytes of body memory",
                    map_bytes(half_bytes));
        return NULL;
    }
    memory = cn_alloc(sizeof(*memory));
    memset(memory, 0, sizeof(*memory));
    memory->map = at;
    memory->half_bytes = (size_t)half_bytes;
    memory->own = own;
    memory->allocator =
        (struct cn_buf_allocator){CN_BODY_MEMORY_MIN_BYTES, take_room, give_room_back};
    return memory;
}

/* Since Linux 6.3 a system may demand that such memory cannot be executed. Older kernels do not
 * know the flag. */
static int
make_memory(void)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create("continuo bodies", flags | MFD_NOEXEC_SEAL);

    return fd >= 0 || errno != EINVAL ? fd : memfd_create("continuo bodies", flags);
}

int
cn_body_memory_create(uint64_t half_bytes, struct cn_body_memory **out, int *fd,
                      struct cn_error *err)
{
    *out = NULL;
    half_bytes = whole_pages(half_bytes);
    *fd = make_memory();
    if (*fd >= 0 && ftruncate(*fd, (off_t)map_bytes(half_bytes)) == 0 &&
        fcntl(*fd, F_ADD_SEALS, SEALS) == 0)
        *out = map(*fd, half_bytes, 0, err);
    else
        cn_fail_sys(err, CN_E_UNAVAILABLE, errno, "cannot make %zu bytes of body memory",
                    map_bytes(half_bytes));
    if (*out)
        return 0;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return CN_E_UNAVAILABLE;
}

int
cn_body_memory_open(int fd, uint64_t half_bytes, struct cn_body_memory **out, struct cn_error *err)
{
    struct stat about;
    int rc = 0;

    *out = NULL;
    half_bytes = whole_pages(half_bytes);
    if (half_bytes > SIZE_MAX / 4 || fstat(fd, &about) != 0 ||
        (uint64_t)about.st_size != map_bytes(half_bytes))
        rc = cn_fail(err, CN_E_PROTOCOL, "the body memory does not have two halves of %llu bytes",
                     (unsigned long long)half_bytes);
    else if ((*out = map(fd, half_bytes, 1, err)) == NULL)
        rc = CN_E_UNAVAILABLE;
    close(fd);
    return rc;
}

void
cn_body_memory_free(struct cn_body_memory *memory)
{
    if (!memory)
        return;
    munmap(memory->map, map_bytes(memory->half_bytes));
    cn_free(memory);
}

/* --- this side's half */

/* Takes the bodies that are read out of the list. */
static void
forget_read(struct cn_body_memory *memory)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < memory->n_used; i++) {
        const struct cn_body_place *place = &memory->used[i];

        if (atomic_load_explicit(mark(memory, memory->own, place->slot), memory_order_acquire) !=
            place->number)
            memory->used[kept++] = *place;
    }
    memory->n_used = kept;
}

static uint64_t
end_of(const struct cn_body_place *place)
{
    const uint64_t end = place->at + place->bytes;

    return (end + CN_BODY_ALIGNMENT - 1) / CN_BODY_ALIGNMENT * CN_BODY_ALIGNMENT;
}

/* Returns the index in the list before which a body of this size has a place, and where; -1 when
 * there is no place. */
static int
find_gap(const struct cn_body_memory *memory, size_t bytes, uint64_t *at)
{
    *at = 0;
    for (uint32_t i = 0; i < memory->n_used; i++) {
        if (memory->used[i].at - *at >= bytes)
            return (int)i;
        *at = end_of(&memory->used[i]);
    }
    return *at <= memory->half_bytes && memory->half_bytes - *at >= bytes ? (int)memory->n_used
                                                                          : -1;
}

static uint32_t
free_slot(const struct cn_body_memory *memory)
{
    uint64_t taken = 0;

    _Static_assert(CN_BODY_SLOTS == 64, "one bit for each slot");
    for (uint32_t i = 0; i < memory->n_used; i++)
        taken |= 1ull << memory->used[i].slot;
    return (uint32_t)__builtin_ctzll(~taken);
}

/* Takes a place of this size. Returns NULL when none is free. */
static struct cn_body_place *
take_place(struct cn_body_memory *memory, size_t bytes)
{
    struct cn_body_place *place;
    uint32_t slot;
    uint64_t at;
    int before;

    forget_read(memory);
    if (memory->n_used == CN_BODY_SLOTS || (before = find_gap(memory, bytes, &at)) < 0)
        return NULL;
    if (++memory->number == 0)
        memory->number = 1;
    slot = free_slot(memory);
    /* The mark of the slot's last body must not count for this one. */
    atomic_store_explicit(mark(memory, memory->own, slot), 0, memory_order_relaxed);
    place = &memory->used[before];
    memmove(place + 1, place, (memory->n_used - (uint32_t)before) * sizeof(*place));
    *place = (struct cn_body_place){slot, memory->number, at, (uint32_t)bytes};
    memory->n_used++;
    if (memory->touched < at + bytes)
        memory->touched = at + bytes;
    memory->idle = false;
    return place;
}

/* Returns the index in the list of a buffer's place that begins at `at`; -1: none does. */
static int
find_written(const struct cn_body_memory *memory, const char *at)
{
    for (uint32_t i = 0; memory->written && i < memory->n_used; i++) {
        const struct cn_body_place *place = &memory->used[i];

        if ((memory->written >> place->slot & 1) && half(memory, memory->own) + place->at == at)
            return (int)i;
    }
    return -1;
}

bool
cn_body_memory_is_written(const struct cn_body_memory *memory, const char *at)
{
    return memory && find_written(memory, at) >= 0;
}

bool
cn_body_memory_put(struct cn_body_memory *memory, struct cn_str bytes, struct cn_body_place *out)
{
    const int written = find_written(memory, bytes.ptr);
    struct cn_body_place *place;

    if (written >= 0) {
        place = &memory->used[written];
        cn_assert(bytes.len <= place->bytes);
        place->bytes = (uint32_t)bytes.len;
        memory->written &= ~(1ull << place->slot);
    } else {
        place = take_place(memory, bytes.len);
        if (!place)
            return false;
        memcpy(half(memory, memory->own) + place->at, bytes.ptr, bytes.len);
    }
    *out = *place;
    return true;
}

struct cn_buf_allocator *
cn_body_memory_allocator(struct cn_body_memory *memory)
{
    return memory ? &memory->allocator : NULL;
}

static char *
take_room(struct cn_buf_allocator *allocator, size_t bytes)
{
    struct cn_body_memory *memory = cn_container_of(allocator, struct cn_body_memory, allocator);
    struct cn_body_place *place = bytes < UINT32_MAX ? take_place(memory, bytes) : NULL;

    if (!place)
        return NULL;
    memory->written |= 1ull << place->slot;
    return half(memory, memory->own) + place->at;
}

static void
give_room_back(struct cn_buf_allocator *allocator, char *data)
{
    struct cn_body_memory *memory = cn_container_of(allocator, struct cn_body_memory, allocator);
    const int written = find_written(memory, data);

    cn_assert(written >= 0);
    memory->written &= ~(1ull << memory->used[written].slot);
    memory->n_used--;
    memmove(&memory->used[written], &memory->used[written + 1],
            (memory->n_used - (uint32_t)written) * sizeof(*memory->used));
}

bool
cn_body_memory_trim(struct cn_body_memory *memory)
{
    if (!memory->idle) {
        memory->idle = true;
        return true;
    }
    forget_read(memory);
    /* If it fails, the pages stay, and the next call tries again. */
    if (memory->touched > 0 && memory->n_used == 0 &&
        madvise(half(memory, memory->own), whole_pages(memory->touched), MADV_REMOVE) == 0)
        memory->touched = 0;
    return memory->touched > 0;
}

/* --- the other side's half */

bool
cn_body_memory_find(struct cn_body_memory *memory, const struct cn_body_place *place,
                    struct cn_str *out)
{
    if (place->slot >= CN_BODY_SLOTS || place->number == 0 ||
        memory->found[place->slot].number != 0 || place->at > memory->half_bytes ||
        place->bytes > memory->half_bytes - place->at)
        return false;
    *out = (struct cn_str){half(memory, !memory->own) + place->at, place->bytes};
    memory->found[place->slot].number = place->number;
    memory->found[place->slot].at = out->ptr;
    memory->n_found++;
    memory->idle = false;
    return true;
}

bool
cn_body_memory_has(const struct cn_body_memory *memory, const char *at)
{
    const char *begin = memory ? half(memory, !memory->own) : NULL;

    return begin && at >= begin && at < begin + memory->half_bytes;
}

void
cn_body_memory_release(struct cn_body_memory *memory, const char *at)
{
    for (uint32_t slot = 0; memory->n_found && slot < CN_BODY_SLOTS; slot++) {
        if (memory->found[slot].number == 0 || memory->found[slot].at != at)
            continue;
        atomic_store_explicit(mark(memory, !memory->own, slot), memory->found[slot].number,
                              memory_order_release);
        memory->found[slot].number = 0;
        memory->n_found--;
        return;
    }
}
