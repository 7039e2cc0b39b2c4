/* kserve/shared_memory.c - the regions of shared memory. Any thread. The lock is held for a few
 * lines, never while bytes are copied.
 *
 * A region has references: one of the list of registered regions, and one of each request that uses
 * it. A request takes its references in cn_shm_read() and gives them back in cn_shm_release(). If a
 * region is unregistered while requests use it, it is only marked as `leaving`: new requests do not
 * find it, its name stays taken, and the last request removes it from the list. So a request never
 * writes into a region that was registered later under the same name.
 *
 * A client can shrink its object at any time, so each access checks the object's size first
 * (reaches) and then uses pread or pwrite, which fail, rather than a mapping, which would raise
 * SIGBUS. Writing after the end would make the client's object larger; the check prevents that,
 * too.
 */
#include "kserve/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/containers/list.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"

#define KEY_MAX_BYTES 255
#define NAME_MAX_BYTES 1024
#define RESERVED_PREFIX "triton_python_backend_shm_region_"

struct cn_shm_region {
    struct cn_list link;
    unsigned refs; /* references: of the list, and of each request that uses it */
    bool leaving;  /* unregistered, but still used by requests */
    int fd;
    uint64_t offset, bytes;
    char *name, *key;
};

static struct {
    pthread_mutex_t lock;
    struct cn_shm_limits limits;
    struct cn_list regions;
    uint32_t n;
} shm = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Gives up a reference; the last one frees the region. */
static void
region_unref(struct cn_shm_region *region)
{
    if (--region->refs > 0)
        return;
    close(region->fd);
    cn_free(region->name);
    cn_free(region->key);
    cn_free(region);
}

/* Takes a region off the list and gives up the list's reference. */
static void
forget(struct cn_shm_region *region)
{
    cn_list_remove(&region->link);
    shm.n--;
    region_unref(region);
}

static struct cn_shm_region *
find(struct cn_str name)
{
    struct cn_list *node;

    cn_list_for_each(node, &shm.regions) {
        struct cn_shm_region *region = cn_container_of(node, struct cn_shm_region, link);

        if (cn_str_eq(name, cn_str_from(region->name)))
            return region;
    }
    return NULL;
}

void
cn_shm_setup(const struct cn_shm_limits *limits)
{
    struct cn_list *node, *next;

    if (!shm.regions.next)
        cn_list_init(&shm.regions);
    cn_list_for_each_safe(node, next, &shm.regions)
        forget(cn_container_of(node, struct cn_shm_region, link));
    shm.limits = *limits;
}

/* --- register, unregister, status */

static int
check_allowed(struct cn_error *err)
{
    if (shm.limits.allowed)
        return 0;
    return cn_fail(err, CN_E_UNIMPLEMENTED,
                   "Client shared memory is disabled. Start the server with "
                   "'--allow-client-shm=true' to enable.");
}

/* Keys with this prefix belong to Triton's Python backend; its clients expect an error for them. */
static bool
is_reserved(struct cn_str key)
{
    const size_t len = sizeof(RESERVED_PREFIX) - 1;

    while (key.len > 0 && key.ptr[0] == '/') {
        key.ptr++;
        key.len--;
    }
    return key.len >= len && memcmp(key.ptr, RESERVED_PREFIX, len) == 0;
}

static int
fail_open(struct cn_str key, struct cn_error *err)
{
    return cn_fail(err, CN_E_INTERNAL, "Unable to open shared memory region: '%.*s'",
                   CN_STR_ARG(key));
}

/* Opens the object and returns its descriptor, or -1. A slash is allowed only at the start of its
 * name, so that it lies in the system's folder for such objects and nowhere else. */
static int
open_object(struct cn_str key, uint64_t *bytes)
{
    char path[KEY_MAX_BYTES + 2] = "/";
    struct stat st;
    int fd;

    if (key.len > 0 && key.ptr[0] == '/') {
        key.ptr++;
        key.len--;
    }
    if (key.len == 0 || key.len > KEY_MAX_BYTES || memchr(key.ptr, '/', key.len) ||
        memchr(key.ptr, '\0', key.len) || key.ptr[0] == '.')
        return -1;
    memcpy(path + 1, key.ptr, key.len);
    fd = shm_open(path, O_RDWR, 0);
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        return -1;
    }
    if (fd >= 0)
        *bytes = (uint64_t)st.st_size;
    return fd;
}

/* Adds a region to the list. The caller holds the lock. */
static int
add_region(struct cn_shm_region *region, struct cn_error *err)
{
    struct cn_str name = cn_str_from(region->name);

    if (find(name))
        return cn_fail(err, CN_E_ALREADY_EXISTS, "shared memory region '%.*s' already in manager",
                       CN_STR_ARG(name));
    if (shm.n >= shm.limits.max_regions)
        return cn_fail(err, CN_E_UNAVAILABLE,
                       "%u shared memory regions are registered, which is the limit; raise "
                       "--max-shared-memory-regions for more",
                       shm.n);
    cn_list_push_back(&shm.regions, &region->link);
    shm.n++;
    return 0;
}

static int
check_register(struct cn_str name, struct cn_str key, uint64_t bytes, struct cn_error *err)
{
    if (check_allowed(err))
        return err->code;
    if (name.len == 0 || name.len > NAME_MAX_BYTES || memchr(name.ptr, '\0', name.len))
        return cn_fail(
            err, CN_E_BAD_REQUEST,
            "the name of a shared memory region must have 1 to %d bytes, none of them zero",
            NAME_MAX_BYTES);
    if (is_reserved(key))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "cannot register shared memory region '%.*s' with key '%.*s' as the key "
                       "contains the reserved prefix '" RESERVED_PREFIX "'",
                       CN_STR_ARG(name), CN_STR_ARG(key));
    if (bytes > shm.limits.max_region_bytes)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "failed to register shared memory region '%.*s': it has %llu bytes; the "
                       "limit is %llu (--max-shared-memory-size)",
                       CN_STR_ARG(name), (unsigned long long)bytes,
                       (unsigned long long)shm.limits.max_region_bytes);
    return 0;
}

int
cn_shm_register(struct cn_str name, struct cn_str key, uint64_t offset, uint64_t bytes,
                struct cn_error *err)
{
    struct cn_shm_region *region;
    uint64_t end, has = 0;
    int fd, rc;

    if (check_register(name, key, bytes, err))
        return err->code;
    fd = open_object(key, &has);
    if (fd < 0)
        return fail_open(key, err);
    if (bytes == 0 || __builtin_add_overflow(offset, bytes, &end) || end > has) {
        close(fd);
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "failed to register shared memory region '%.*s': invalid args",
                       CN_STR_ARG(name));
    }
    region = cn_alloc(sizeof *region);
    *region = (struct cn_shm_region){.refs = 1,
                                     .fd = fd,
                                     .offset = offset,
                                     .bytes = bytes,
                                     .name = cn_strndup(name.ptr, name.len),
                                     .key = cn_strndup(key.ptr, key.len)};
    pthread_mutex_lock(&shm.lock);
    rc = add_region(region, err);
    if (rc)
        region_unref(region);
    pthread_mutex_unlock(&shm.lock);
    return rc;
}

int
cn_shm_unregister(struct cn_str name, struct cn_error *err)
{
    struct cn_list *node, *next;

    if (check_allowed(err))
        return err->code;
    pthread_mutex_lock(&shm.lock);
    cn_list_for_each_safe(node, next, &shm.regions) {
        struct cn_shm_region *region = cn_container_of(node, struct cn_shm_region, link);

        if (name.len > 0 && !cn_str_eq(name, cn_str_from(region->name)))
            continue;
        if (region->refs > 1)
            region->leaving = true;
        else
            forget(region);
    }
    pthread_mutex_unlock(&shm.lock);
    return 0;
}

int
cn_shm_register_cuda(struct cn_str name, struct cn_error *err)
{
    if (check_allowed(err))
        return err->code;
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "failed to register CUDA shared memory region: '%.*s', GPUs not supported",
                   CN_STR_ARG(name));
}

int
cn_shm_list(struct cn_str name, struct cn_arena *arena, struct cn_shm_status **out, uint32_t *n,
            struct cn_error *err)
{
    struct cn_list *node;

    *n = 0;
    pthread_mutex_lock(&shm.lock);
    *out = cn_arena_alloc(arena, (shm.n + 1) * sizeof **out);
    cn_list_for_each(node, &shm.regions) {
        const struct cn_shm_region *region = cn_container_of(node, struct cn_shm_region, link);

        if (name.len == 0 || cn_str_eq(name, cn_str_from(region->name)))
            (*out)[(*n)++] = (struct cn_shm_status){cn_arena_str(arena, cn_str_from(region->name)),
                                                    cn_arena_str(arena, cn_str_from(region->key)),
                                                    region->offset, region->bytes};
    }
    pthread_mutex_unlock(&shm.lock);
    if (name.len && *n == 0)
        return cn_fail(err, CN_E_NOT_FOUND, "Unable to find system shared memory region: '%.*s'",
                       CN_STR_ARG(name));
    return 0;
}

/* --- tensors */

/* Takes a reference to the window's region, and checks that the window lies inside it. */
static int
hold(struct cn_v2_window *window, struct cn_error *err)
{
    struct cn_shm_region *region;
    uint64_t end;

    pthread_mutex_lock(&shm.lock);
    region = find(window->region);
    if (region && region->leaving)
        region = NULL;
    if (region)
        region->refs++;
    pthread_mutex_unlock(&shm.lock);
    window->held = region;
    if (!region)
        return cn_fail(err, CN_E_NOT_FOUND, "Unable to find shared memory region: '%.*s'",
                       CN_STR_ARG(window->region));
    if (window->offset >= region->bytes)
        return cn_fail(err, CN_E_BAD_REQUEST, "Invalid offset for shared memory region: '%.*s'",
                       CN_STR_ARG(window->region));
    if (__builtin_add_overflow(window->offset, window->bytes, &end) || end > region->bytes)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "Invalid offset + byte size for shared memory region: '%.*s'",
                       CN_STR_ARG(window->region));
    return 0;
}

/* Gives up the window's reference, and removes the region if it was unregistered meanwhile and this
 * was its last request. */
static void
drop(struct cn_v2_window *window)
{
    if (!window->held)
        return;
    pthread_mutex_lock(&shm.lock);
    if (window->held->leaving && window->held->refs == 2)
        forget(window->held); /* this was the last request, so the list's reference goes, too */
    region_unref(window->held);
    pthread_mutex_unlock(&shm.lock);
    window->held = NULL;
}

static int
fail_shrunk(const struct cn_v2_window *window, struct cn_error *err)
{
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "shared memory region '%.*s' has become smaller than it was when it was "
                   "registered; unregister it and register it again",
                   CN_STR_ARG(window->region));
}

/* Does the object still have the first `bytes` of the window? A write after its end would make it
 * larger, and a read would find less. */
static bool
reaches(const struct cn_v2_window *window, uint64_t bytes)
{
    struct stat st;

    return fstat(window->held->fd, &st) == 0 &&
           (uint64_t)st.st_size >= window->held->offset + window->offset + bytes;
}

static int
read_window(const struct cn_v2_window *window, char *to, struct cn_error *err)
{
    uint64_t at = window->held->offset + window->offset, done = 0;

    while (done < window->bytes) {
        ssize_t n = pread(window->held->fd, to + done, window->bytes - done, (off_t)(at + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail_shrunk(window, err);
        done += (uint64_t)n;
    }
    return 0;
}

/* Reads one input; `left` is how many bytes the request may still read. */
static int
read_input(struct cn_v2_window *window, uint64_t *left, struct cn_arena *arena,
           struct cn_tensor *tensor, struct cn_error *err)
{
    char *bytes;

    if (hold(window, err))
        return err->code;
    if (window->bytes > *left)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "input '%.*s' has %llu bytes in shared memory, which is more than "
                       "--max-v2-request-size allows for a request",
                       CN_STR_ARG(tensor->name), (unsigned long long)window->bytes);
    *left -= window->bytes;
    bytes = cn_arena_try_alloc(arena, window->bytes ? (size_t)window->bytes : 1);
    if (!bytes)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for an input of %llu bytes",
                       (unsigned long long)window->bytes);
    if (!reaches(window, window->bytes))
        return fail_shrunk(window, err);
    tensor->data = (struct cn_str){bytes, (size_t)window->bytes};
    return read_window(window, bytes, err);
}

bool
cn_shm_is_used(const struct cn_v2_request *request)
{
    for (uint32_t i = 0; request->windows && i < request->n_inputs; i++)
        if (request->windows[i].region.len)
            return true;
    for (uint32_t i = 0; i < request->n_outputs; i++)
        if (request->outputs[i].window.region.len)
            return true;
    return false;
}

uint64_t
cn_shm_input_bytes(const struct cn_v2_request *request)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; request->windows && i < request->n_inputs; i++) {
        if (!request->windows[i].region.len)
            continue;
        if (request->windows[i].bytes > shm.limits.max_input_bytes - bytes)
            return 0;
        bytes += request->windows[i].bytes;
    }
    return bytes;
}

int
cn_shm_read(struct cn_v2_request *request, struct cn_arena *arena, struct cn_error *err)
{
    uint64_t left = shm.limits.max_input_bytes;
    int rc = 0;

    for (uint32_t i = 0; request->windows && !rc && i < request->n_inputs; i++) {
        if (!request->windows[i].region.len)
            continue;
        rc = read_input(&request->windows[i], &left, arena, &request->inputs[i], err);
        drop(&request->windows[i]);
    }
    for (uint32_t i = 0; !rc && i < request->n_outputs; i++)
        if (request->outputs[i].window.region.len)
            rc = hold(&request->outputs[i].window, err);
    return rc;
}

static int
write_window(const struct cn_v2_window *window, struct cn_str bytes, struct cn_error *err)
{
    uint64_t at = window->held->offset + window->offset;
    size_t done = 0;

    if (!reaches(window, bytes.len))
        return fail_shrunk(window, err);
    while (done < bytes.len) {
        ssize_t n =
            pwrite(window->held->fd, bytes.ptr + done, bytes.len - done, (off_t)(at + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return cn_fail_sys(err, CN_E_INTERNAL, n < 0 ? errno : ENOSPC,
                               "cannot write to shared memory region '%.*s'",
                               CN_STR_ARG(window->region));
        done += (size_t)n;
    }
    return 0;
}

int
cn_shm_store(const struct cn_v2_request *request, struct cn_tensor *tensors, uint32_t n,
             struct cn_error *err)
{
    for (uint32_t o = 0; o < request->n_outputs; o++) {
        const struct cn_v2_output *output = &request->outputs[o];
        const struct cn_v2_window *window = &output->window;

        for (uint32_t i = 0; window->held && i < n; i++) {
            if (!cn_str_eq(tensors[i].name, output->name))
                continue;
            if (tensors[i].data.len > window->bytes)
                return cn_fail(err, CN_E_INTERNAL,
                               "shared memory size specified with the request for output '%.*s' "
                               "(%llu bytes) should be at least %zu bytes to hold the results",
                               CN_STR_ARG(output->name), (unsigned long long)window->bytes,
                               tensors[i].data.len);
            if (write_window(window, tensors[i].data, err))
                return err->code;
            tensors[i].data.len = 0;
        }
    }
    return 0;
}

void
cn_shm_release(struct cn_v2_request *request)
{
    for (uint32_t i = 0; request->windows && i < request->n_inputs; i++)
        drop(&request->windows[i]);
    for (uint32_t i = 0; i < request->n_outputs; i++)
        drop(&request->outputs[i].window);
}
