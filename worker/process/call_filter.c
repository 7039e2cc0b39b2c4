/* worker/process/call_filter.c - writes the filter as a program for the kernel's small machine
 * (BPF), and installs it. One thread.
 *
 * The filter names what is refused, and allows the rest: the libraries that a model brings along
 * need calls that nobody here can list, and an update of one of them must not stop a worker. It
 * refuses calls that attackers have used to exploit kernels, calls that reach other processes, and
 * calls that concern the whole machine.
 *
 * The kernel finds out for each call without arguments, once and for all, whether the filter always
 * allows it. So a step pays nothing for the length of the list.
 *
 * clone3 keeps its flags in memory, which a filter cannot read. It answers ENOSYS, and the C
 * library then uses clone, as it does on older kernels.
 */
#include "worker/process/call_filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/errors/panic.h"

#if defined(__x86_64__)
#define PROCESSOR AUDIT_ARCH_X86_64
#define X32_BIT 0x40000000u /* a second table of calls, with 32-bit pointers */
#elif defined(__aarch64__)
#define PROCESSOR AUDIT_ARCH_AARCH64
#endif

#define NEW_NAMESPACES                                                                             \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET)
#define PROGRAM_MAX 256
/* The lower half of an argument; both processors store it first. */
#define ARGUMENT(n) offsetof(struct seccomp_data, args[n])
#define SOCKET_TYPE_BITS 0xfu /* the others are flags */

/* Numbers of calls that are younger than Debian 12's headers; they are equal everywhere. */
#define CALL_FSPICK 433
#define CALL_MOUNT_SETATTR 442

static const int refused[] = {
    /* other processes: their memory and descriptors */
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_pidfd_getfd,
    SYS_kcmp,
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* LeakSanitizer uses it */
    SYS_ptrace,
#endif
    /* mounts and namespaces */
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_move_mount,
    SYS_open_tree,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    CALL_FSPICK,
    CALL_MOUNT_SETATTR,
    SYS_unshare,
    SYS_setns,
    SYS_open_by_handle_at,
    SYS_fanotify_init,
    SYS_quotactl,
    /* the kernel: its programs, modules, keys and counters */
    SYS_bpf,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_syslog,
    /* shared memory, semaphores and queues that every process of the same user can open */
    SYS_shmget,
    SYS_shmat,
    SYS_shmctl,
    SYS_semget,
    SYS_semop,
    SYS_semtimedop,
    SYS_semctl,
    SYS_msgget,
    SYS_msgsnd,
    SYS_msgrcv,
    SYS_msgctl,
    SYS_mq_open,
    SYS_mq_unlink,
    /* a second way to make calls, which no filter sees */
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    /* the machine: its clock, name, swap and ports */
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_settimeofday,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_swapon,
    SYS_swapoff,
    SYS_reboot,
    SYS_acct,
#ifdef __x86_64__
    SYS_iopl,
    SYS_ioperm,
    SYS_uselib,
#endif
};

/* Calls that change a process of the same user. The argument that names it must be 0, which means
 * the caller. With `users` or more in the first argument, 0 means all processes of the user. */
static const struct {
    int call, argument;
    uint32_t users;
} own_only[] = {
    {SYS_prlimit64, 0, 0},          {SYS_setpriority, 1, 2},    {SYS_ioprio_set, 1, 3},
    {SYS_sched_setscheduler, 0, 0}, {SYS_sched_setparam, 0, 0}, {SYS_sched_setattr, 0, 0},
};

static const int refused_alone[] = {
    SYS_execve, SYS_execveat, SYS_pidfd_open, SYS_pidfd_send_signal,
#ifdef __x86_64__
    SYS_fork,   SYS_vfork,
#endif
};

#ifdef PROCESSOR
struct program {
    struct sock_filter code[PROGRAM_MAX];
    unsigned short n;
};

static void
add(struct program *program, struct sock_filter instruction)
{
    cn_assert(program->n < PROGRAM_MAX);
    program->code[program->n++] = instruction;
}

static void
load(struct program *program, size_t offset)
{
    add(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

/* Jumps over the next `n` instructions unless the loaded value compares so; `code` is BPF_JEQ,
 * BPF_JGE or BPF_JSET. */
static void
skip_unless(struct program *program, uint16_t code, uint32_t value, uint8_t n)
{
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_K | code, value, 0, n));
}

static void
answer(struct program *program, uint32_t what)
{
    add(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

static void
fail_with(struct program *program, int error)
{
    answer(program, SECCOMP_RET_ERRNO | (uint32_t)error);
}

static void
refuse(struct program *program, const int *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        skip_unless(program, BPF_JEQ, (uint32_t)calls[i], 1);
        fail_with(program, EPERM);
    }
}

/* The instructions of `block` run for this call only; its last one is an answer. */
static void
judge(struct program *program, uint32_t call, const struct program *block)
{
    skip_unless(program, BPF_JEQ, call, (uint8_t)block->n);
    for (unsigned short i = 0; i < block->n; i++)
        add(program, block->code[i]);
}

static void
allow_if(struct program *program, uint16_t code, uint32_t value)
{
    skip_unless(program, code, value, 1);
    answer(program, SECCOMP_RET_ALLOW);
}

/* socket: families that are allowed. Unix sockets lead to services of the machine, which may do
 * what the worker may not; but CUDA's driver opens one for packets in order (SOCK_SEQPACKET), which
 * hardly any service has. Socket pairs are another call. */
static void
judge_sockets(struct program *program, const struct cn_call_rules *rules)
{
    struct program block = {.n = 0};

    load(&block, ARGUMENT(0));
    if (rules->network) {
        allow_if(&block, BPF_JEQ, AF_INET);
        allow_if(&block, BPF_JEQ, AF_INET6);
        allow_if(&block, BPF_JEQ, AF_NETLINK); /* getaddrinfo asks which addresses there are */
    }
    if (!rules->alone) {
        skip_unless(&block, BPF_JEQ, AF_UNIX, 4);
        load(&block, ARGUMENT(1));
        add(&block, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, SOCKET_TYPE_BITS));
        allow_if(&block, BPF_JEQ, SOCK_SEQPACKET);
    }
    fail_with(&block, EPERM);
    judge(program, SYS_socket, &block);
}

/* socketpair: Unix sockets that reach nobody but each other. One for datagrams would not be such a
 * socket: it can connect again, to a service of the machine, or name one with each message. The
 * kernel makes sockets of any other family before it says that they make no pairs. */
static void
judge_pairs(struct program *program)
{
    struct program block = {.n = 0};

    load(&block, ARGUMENT(0));
    skip_unless(&block, BPF_JEQ, AF_UNIX, 6);
    load(&block, ARGUMENT(1));
    add(&block, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, SOCKET_TYPE_BITS));
    allow_if(&block, BPF_JEQ, SOCK_STREAM);
    allow_if(&block, BPF_JEQ, SOCK_SEQPACKET);
    fail_with(&block, EPERM);
    judge(program, SYS_socketpair, &block);
}

/* clone: no new namespaces; alone, nothing but threads. */
static void
judge_clones(struct program *program, bool alone)
{
    struct program block = {.n = 0};

    skip_unless(program, BPF_JEQ, SYS_clone3, 1);
    fail_with(program, ENOSYS);
    load(&block, ARGUMENT(0));
    skip_unless(&block, BPF_JSET, NEW_NAMESPACES, 1);
    fail_with(&block, EPERM);
    if (alone) {
        allow_if(&block, BPF_JSET, CLONE_THREAD);
        fail_with(&block, EPERM);
    }
    answer(&block, SECCOMP_RET_ALLOW);
    judge(program, SYS_clone, &block);
}

/* The kernel lets each process change the limits, the priority and the policy of all processes of
 * its user: a handler could end the server by a limit of its CPU time. */
static void
judge_others(struct program *program)
{
    for (size_t i = 0; i < sizeof(own_only) / sizeof(*own_only); i++) {
        struct program block = {.n = 0};

        if (own_only[i].users) {
            load(&block, ARGUMENT(0));
            skip_unless(&block, BPF_JGE, own_only[i].users, 1);
            fail_with(&block, EPERM);
        }
        load(&block, ARGUMENT(own_only[i].argument));
        allow_if(&block, BPF_JEQ, 0);
        fail_with(&block, EPERM);
        judge(program, (uint32_t)own_only[i].call, &block);
    }
}

static void
write_program(struct program *program, const struct cn_call_rules *rules)
{
    load(program, offsetof(struct seccomp_data, arch));
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_K | BPF_JEQ, PROCESSOR, 1, 0));
    fail_with(program, EPERM); /* the calls of another processor, which this one also runs */
    load(program, offsetof(struct seccomp_data, nr));
#ifdef X32_BIT
    skip_unless(program, BPF_JGE, X32_BIT, 1);
    fail_with(program, EPERM);
#endif
    refuse(program, refused, sizeof(refused) / sizeof(*refused));
    if (rules->alone)
        refuse(program, refused_alone, sizeof(refused_alone) / sizeof(*refused_alone));
    judge_others(program);
    judge_sockets(program, rules);
    judge_pairs(program);
    judge_clones(program, rules->alone);
    answer(program, SECCOMP_RET_ALLOW);
}
#endif

int
cn_call_filter_install(const struct cn_call_rules *rules)
{
#ifdef PROCESSOR
    struct program program = {.n = 0};
    struct sock_fprog given;
    long rc;

    write_program(&program, rules);
    given = (struct sock_fprog){.len = program.n, .filter = program.code};
    rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &given);
    if (rc > 0) /* the number of a thread that has another filter */
        errno = EBUSY;
    return rc == 0 ? 0 : -1;
#else
    (void)rules, (void)refused, (void)refused_alone;
    errno = ENOTSUP;
    return -1;
#endif
}
