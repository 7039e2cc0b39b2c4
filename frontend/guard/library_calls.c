/* frontend/guard/library_calls.c - what the program puts in the place of six library functions.
 * Any thread.
 *
 * The table has one slot for each descriptor. A slot of an HTTP connection belongs to the thread of
 * its loop. A slot of a gRPC connection is set on loop 0, before libgrpc gets the descriptor; after
 * that it is used by whichever thread libgrpc reads with, one at a time. libgrpc's locks order
 * these uses, and close() comes last.
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
#include <sys/syscall.h>
#include <unistd.h>

#include "core/log/log.h"
#include "core/time/clock.h"
#include "frontend/guard/client_addresses.h"
#include "frontend/guard/h2_guard.h"
#include "frontend/guard/head_text.h"

/* ThreadSanitizer does not see libgrpc's locks. It is told in which order threads use a slot. What
 * a read writes into libgrpc's own memory, and what it sends from there, is not recorded: the loop
 * that copies it would be called a race for every eight bytes, and judging those took 25 s for a
 * megabyte. */
#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *address);
void __tsan_release(void *address);
void __tsan_ignore_thread_begin(void);
void __tsan_ignore_thread_end(void);
#define takes_turn(slot) __tsan_acquire(slot)
#define gives_turn(slot) __tsan_release(slot)
#else
#define __tsan_ignore_thread_begin() ((void)0)
#define __tsan_ignore_thread_end() ((void)0)
#define takes_turn(slot) ((void)(slot))
#define gives_turn(slot) ((void)(slot))
#endif

#define FDS_MAX (1u << 20)

enum kind { NOBODY, HTTP, GRPC };

struct slot {
    _Atomic uint8_t kind; /* enum kind */
    uint8_t port;
    struct cn_http_reader *reader;
    bool is_guarded;
    struct cn_h2_limits limits; /* a copy: libgrpc's threads may outlive the door that has them */
    struct cn_client_address *from;
    struct cn_h2_guard h2;
};

static struct slot *slots;
static size_t n_slots;
static _Atomic uint32_t n_grpc[CN_GRPC_PORTS];
static _Atomic uint64_t n_cut;
static _Thread_local bool in_http, in_tls;

/* The names that the linker sees. With the C names, headers of the C library would add their own
 * bodies. */
ssize_t cn_call_recv(int fd, void *out, size_t room, int flags) __asm__("recv");
ssize_t cn_call_recvmsg(int fd, struct msghdr *msg, int flags) __asm__("recvmsg");
ssize_t cn_call_send(int fd, const void *bytes, size_t len, int flags) __asm__("send");
ssize_t cn_call_sendmsg(int fd, const struct msghdr *msg, int flags) __asm__("sendmsg");
int cn_call_close(int fd) __asm__("close");
ssize_t cn_call_record_recv(gnutls_session_t session, void *out,
                            size_t room) __asm__("gnutls_record_recv");

static ssize_t (*real_recv)(int, void *, size_t, int);
static ssize_t (*real_recvmsg)(int, struct msghdr *, int);
static ssize_t (*real_send)(int, const void *, size_t, int);
static cn_sendmsg_fn *real_sendmsg;
static int (*real_close)(int);
static ssize_t (*real_record_recv)(gnutls_session_t, void *, size_t);

/* Finds the functions whose place we have taken. ISO C has no cast from void * to a function
 * pointer. Runs before main(). */
__attribute__((constructor)) static void
find_real_functions(void)
{
    void *found[] = {dlsym(RTLD_NEXT, "recv"),  dlsym(RTLD_NEXT, "recvmsg"),
                     dlsym(RTLD_NEXT, "close"), dlsym(RTLD_NEXT, "gnutls_record_recv"),
                     dlsym(RTLD_NEXT, "send"),  dlsym(RTLD_NEXT, "sendmsg")};

    memcpy(&real_recv, &found[0], sizeof(found[0]));
    memcpy(&real_recvmsg, &found[1], sizeof(found[1]));
    memcpy(&real_close, &found[2], sizeof(found[2]));
    memcpy(&real_record_recv, &found[3], sizeof(found[3]));
    memcpy(&real_send, &found[4], sizeof(found[4]));
    memcpy(&real_sendmsg, &found[5], sizeof(found[5]));
}

static struct slot *
slot_of(int fd)
{
    return fd >= 0 && (size_t)fd < n_slots ? &slots[fd] : NULL;
}

static enum kind
kind_of(const struct slot *slot)
{
    return slot ? (enum kind)atomic_load_explicit(&slot->kind, memory_order_acquire) : NOBODY;
}

int
cn_library_calls_start(struct cn_error *err)
{
    ssize_t (*ours)(int, struct msghdr *, int) = cn_call_recvmsg;
    void *seen = dlsym(RTLD_DEFAULT, "recvmsg");
    struct rlimit limit = {0};
    void *memory;

    if (slots)
        return 0;
    if (memcmp(&ours, &seen, sizeof(seen)) != 0)
        return cn_fail(err, CN_E_UNAVAILABLE,
                       "this program must not be started with a library that replaces recvmsg() "
                       "(LD_PRELOAD), because its connections would not be guarded");
    getrlimit(RLIMIT_NOFILE, &limit);
    n_slots = limit.rlim_max < FDS_MAX ? (size_t)limit.rlim_max : FDS_MAX;
    /* Pages that no descriptor uses cost nothing. */
    memory = mmap(NULL, n_slots * sizeof(*slots), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        cn_fail_sys(err, CN_E_UNAVAILABLE, errno, "not enough memory for %zu descriptors", n_slots);
        n_slots = 0;
        return CN_E_UNAVAILABLE;
    }
    slots = memory;
    return 0;
}

/* --- HTTP */

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
    struct slot *slot = slot_of(fd);

    if (!slot)
        return;
    (void)kind_of(slot); /* what the last user of this descriptor wrote comes before */
    slot->reader = reader;
    atomic_store_explicit(&slot->kind, reader ? HTTP : NOBODY, memory_order_release);
}

static struct cn_http_reader *
reader_of(int fd)
{
    struct slot *slot = slot_of(fd);

    return kind_of(slot) == HTTP ? slot->reader : NULL;
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
    ssize_t n;

    if (text)
        return cn_head_text_send(text, fd, msg->msg_iov, msg->msg_iovlen, flags, real_sendmsg);
    if (kind_of(slot_of(fd)) != GRPC)
        return real_sendmsg(fd, msg, flags);
    __tsan_ignore_thread_begin();
    n = real_sendmsg(fd, msg, flags);
    __tsan_ignore_thread_end();
    return n;
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

/* --- gRPC */

bool
cn_library_calls_set_grpc(int fd, unsigned port, const struct cn_h2_limits *limits,
                          struct cn_client_address *from)
{
    struct slot *slot = slot_of(fd);

    if (!slot)
        return false;
    (void)kind_of(slot); /* as above */
    slot->port = (uint8_t)port;
    slot->is_guarded = limits != NULL;
    slot->from = from;
    if (limits) {
        slot->limits = *limits;
        cn_h2_guard_init(&slot->h2, limits);
    }
    atomic_fetch_add(&n_grpc[port], 1);
    gives_turn(slot);
    atomic_store_explicit(&slot->kind, GRPC, memory_order_release);
    return true;
}

uint32_t
cn_library_calls_grpc_open(unsigned port)
{
    return atomic_load(&n_grpc[port]);
}

uint64_t
cn_library_calls_grpc_cut(void)
{
    return atomic_load(&n_cut);
}

void
cn_library_calls_count_cut(void)
{
    atomic_fetch_add(&n_cut, 1);
}

/* Feeds what was read to the connection's guard. Returns false when the connection must end. */
static bool
feed(struct slot *slot, const struct msghdr *msg, size_t n)
{
    size_t i;
    bool is_good = true;

    if (!slot->is_guarded)
        return true;
    takes_turn(slot);
    for (i = 0; n > 0 && i < msg->msg_iovlen && is_good; i++) {
        size_t len = msg->msg_iov[i].iov_len < n ? msg->msg_iov[i].iov_len : n;

        is_good =
            cn_h2_guard_feed(&slot->h2, &slot->limits, slot->from, msg->msg_iov[i].iov_base, len);
        n -= len;
    }
    gives_turn(slot);
    return is_good;
}

ssize_t
cn_call_recvmsg(int fd, struct msghdr *msg, int flags)
{
    struct slot *slot = slot_of(fd);
    ssize_t n;

    if (kind_of(slot) != GRPC)
        return real_recvmsg(fd, msg, flags);
    __tsan_ignore_thread_begin();
    n = real_recvmsg(fd, msg, flags);
    __tsan_ignore_thread_end();
    if (n <= 0 || (flags & (MSG_PEEK | MSG_ERRQUEUE)))
        return n;
    if (feed(slot, msg, (size_t)n))
        return n;
    cn_library_calls_count_cut();
    cn_log(CN_LOG_DEBUG,
           "event=grpc_connection_cut fd=%d why=\"too many cancelled calls in a "
           "second (grpc-max-resets)\"",
           fd);
    shutdown(fd, SHUT_RDWR);
    errno = ECONNRESET;
    return -1;
}

int
cn_call_close(int fd)
{
    struct slot *slot = slot_of(fd);

    if (kind_of(slot) == GRPC) {
        takes_turn(slot);
        cn_client_address_release(slot->from, CN_ADDRESS_GRPC + slot->port);
        atomic_fetch_sub(&n_grpc[slot->port], 1);
        atomic_store_explicit(&slot->kind, NOBODY, memory_order_release);
    }
    return real_close ? real_close(fd) : (int)syscall(SYS_close, fd);
}
