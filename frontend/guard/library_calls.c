/* frontend/guard/library_calls.c - what the program puts in the place of four library functions.
 * Any thread.
 *
 * The table has one slot for each descriptor, which belongs to the thread of its connection's loop.
 */
#include "frontend/guard/library_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "frontend/guard/head_text.h"

#define FDS_MAX (1u << 20)

/* What looks at the bytes that are read from each descriptor; NULL: nothing. */
static _Atomic(struct cn_http_reader *) *readers;
static size_t n_readers;
static _Thread_local bool in_http, in_tls;

/* The names that the linker sees. With the C names, headers of the C library would add their own
 * bodies. */
ssize_t cn_call_recv(int fd, void *out, size_t room, int flags) __asm__("recv");
ssize_t cn_call_send(int fd, const void *bytes, size_t len, int flags) __asm__("send");
ssize_t cn_call_sendmsg(int fd, const struct msghdr *msg, int flags) __asm__("sendmsg");
ssize_t cn_call_record_recv(gnutls_session_t session, void *out,
                            size_t room) __asm__("gnutls_record_recv");

static ssize_t (*real_recv)(int, void *, size_t, int);
static ssize_t (*real_send)(int, const void *, size_t, int);
static cn_sendmsg_fn *real_sendmsg;
static ssize_t (*real_record_recv)(gnutls_session_t, void *, size_t);

/* Finds the functions whose place we have taken. ISO C has no cast from void * to a function
 * pointer. Runs before main(). */
__attribute__((constructor)) static void
find_real_functions(void)
{
    void *found[] = {dlsym(RTLD_NEXT, "recv"), dlsym(RTLD_NEXT, "gnutls_record_recv"),
                     dlsym(RTLD_NEXT, "send"), dlsym(RTLD_NEXT, "sendmsg")};

    memcpy(&real_recv, &found[0], sizeof(found[0]));
    memcpy(&real_record_recv, &found[1], sizeof(found[1]));
    memcpy(&real_send, &found[2], sizeof(found[2]));
    memcpy(&real_sendmsg, &found[3], sizeof(found[3]));
}

int
cn_library_calls_start(struct cn_error *err)
{
    ssize_t (*ours)(int, void *, size_t, int) = cn_call_recv;
    void *seen = dlsym(RTLD_DEFAULT, "recv");
    struct rlimit limit = {0};
    void *memory;

    if (readers)
        return 0;
    if (memcmp(&ours, &seen, sizeof(seen)) != 0)
        return cn_fail(err, CN_E_UNAVAILABLE,
                       "this program must not be started with a library that replaces recv() "
                       "(LD_PRELOAD), because its connections would not be guarded");
    getrlimit(RLIMIT_NOFILE, &limit);
    n_readers = limit.rlim_max < FDS_MAX ? (size_t)limit.rlim_max : FDS_MAX;
    /* Pages that no descriptor uses cost nothing. */
    memory = mmap(NULL, n_readers * sizeof(*readers), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        cn_fail_sys(err, CN_E_UNAVAILABLE, errno, "not enough memory for %zu descriptors",
                    n_readers);
        n_readers = 0;
        return CN_E_UNAVAILABLE;
    }
    readers = memory;
    return 0;
}

void
cn_library_calls_begin_http(bool is_tls)
{
    in_http = !is_tls;
    in_tls = is_tls;
}

void
cn_library_calls_end_http(void)
{
    in_http = in_tls = false;
}

void
cn_library_calls_set_http(int fd, struct cn_http_reader *reader)
{
    if (fd >= 0 && (size_t)fd < n_readers)
        atomic_store_explicit(&readers[fd], reader, memory_order_release);
}

static struct cn_http_reader *
reader_of(int fd)
{
    return fd >= 0 && (size_t)fd < n_readers
               ? atomic_load_explicit(&readers[fd], memory_order_acquire)
               : NULL;
}

/* Our own reads have flags, those of libmicrohttpd have none. */
ssize_t
cn_call_recv(int fd, void *out, size_t room, int flags)
{
    struct cn_http_reader *reader = in_http && flags == 0 ? reader_of(fd) : NULL;
    enum cn_may_read may = reader ? reader->may_read(reader) : CN_READ_ON;
    ssize_t n;

    if (may == CN_READ_ON) {
        n = real_recv(fd, out, room, flags);
        if (!reader || n <= 0 || (n = (ssize_t)reader->received(reader, out, (size_t)n)) > 0)
            return n;
    }
    errno = may == CN_READ_NEVER ? ECONNRESET : EAGAIN;
    return -1;
}

/* Returns the text that is to go into the head which libmicrohttpd sends now; NULL: there is
 * none. */
static struct cn_str *
head_text_of(int fd)
{
    struct cn_http_reader *reader = in_http ? reader_of(fd) : NULL;

    return reader && reader->head_text.len ? &reader->head_text : NULL;
}

ssize_t
cn_call_send(int fd, const void *bytes, size_t len, int flags)
{
    const struct iovec part = {(void *)(uintptr_t)bytes, len};
    struct cn_str *text = head_text_of(fd);

    return text ? cn_head_text_send(text, fd, &part, 1, flags, real_sendmsg)
                : real_send(fd, bytes, len, flags);
}

ssize_t
cn_call_sendmsg(int fd, const struct msghdr *msg, int flags)
{
    struct cn_str *text = head_text_of(fd);

    return text ? cn_head_text_send(text, fd, msg->msg_iov, msg->msg_iovlen, flags, real_sendmsg)
                : real_sendmsg(fd, msg, flags);
}

/* libmicrohttpd has made the descriptor the session's place for what it sends. */
ssize_t
cn_call_record_recv(gnutls_session_t session, void *out, size_t room)
{
    struct cn_http_reader *reader = NULL;
    enum cn_may_read may = CN_READ_ON;
    gnutls_transport_ptr_t in, fd;
    ssize_t n;

    if (in_tls) {
        gnutls_transport_get_ptr2(session, &in, &fd);
        reader = reader_of((int)(intptr_t)fd);
    }
    if (reader) {
        reader->tls_session = session;
        may = reader->may_read(reader);
    }
    if (may == CN_READ_ON) {
        n = real_record_recv(session, out, room);
        if (!reader || n <= 0 || (n = (ssize_t)reader->received(reader, out, (size_t)n)) > 0)
            return n;
    }
    return may == CN_READ_NEVER ? GNUTLS_E_PULL_ERROR : GNUTLS_E_AGAIN;
}
