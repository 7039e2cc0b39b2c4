/* worker/process/file_wall.c - builds the wall around a worker's files. Worker's thread, before it
 * has others.
 *
 * Landlock knows only what is allowed. Everything else is out of reach, whoever owns it: stores and
 * archives of other models, the server's keys, /etc/shadow, and also what root may write without
 * any capability: /proc/sys/kernel/core_pattern, for example, names a program that the kernel runs.
 *
 * A path that does not exist is left out: what is made there later stays out of reach. */
#include "worker/process/file_wall.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/system/program_path.h"
#include "worker/process/library_folders.h"

/* Debian 12's header of Landlock lacks the newer rights; in brackets the version that has them. */
#define REFER (UINT64_C(1) << 13)    /* move to another folder [2] */
#define TRUNCATE (UINT64_C(1) << 14) /* [3] */
#define ALL_OF_FIRST ((UINT64_C(1) << 13) - 1)
#define READ                                                                                       \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define USE_DEVICE (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE)
#define WRITE                                                                                      \
    (READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |                        \
     LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |  \
     LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM |   \
     REFER | TRUNCATE)
#define OF_FILES                                                                                   \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_FILE |   \
     TRUNCATE)

/* What programs and libraries need of a system. It has no secrets, and differs little between two
 * machines. /etc is not here as a whole, because root owns its secrets. */
static const char *const readable[] = {
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/proc",
    "/sys/bus",
    "/sys/class",
    "/sys/devices",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
    "/sys/module",
    "/etc/OpenCL",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/lsb-release",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/nvidia",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/openssl.cnf",
    "/etc/protocols",
    "/etc/python3",
    "/etc/python3.11",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/etc/vulkan",
    "/run/NetworkManager/resolv.conf",
    "/run/resolvconf",
    "/run/systemd/resolve",
};

/* Patterns of the devices that a model computes with, or that have no content. */
static const char *const devices[] = {
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
    "/dev/dri",  "/dev/kfd",  "/dev/dxg",  "/dev/accel",  "/dev/nvidia*",
};

struct wall {
    int fd;
    uint64_t handled;
    int failed; /* errno of the first rule that could not be added; 0 */
};

static void
allow(struct wall *wall, const char *path, uint64_t rights)
{
    struct landlock_path_beneath_attr rule = {.parent_fd = open(path, O_PATH | O_CLOEXEC)};
    struct stat st;

    if (rule.parent_fd < 0)
        return;
    if (fstat(rule.parent_fd, &st) == 0) {
        rule.allowed_access =
            rights & wall->handled & (S_ISDIR(st.st_mode) ? ~UINT64_C(0) : OF_FILES);
        if (syscall(SYS_landlock_add_rule, wall->fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0 &&
            !wall->failed)
            wall->failed = errno;
    }
    close(rule.parent_fd);
}

/* To read everything ("/", under any name) is a mistake, and never what somebody needs. */
static void
allow_reading(void *wall, const char *path)
{
    struct stat st, root;

    if (stat(path, &st) == 0 && stat("/", &root) == 0 &&
        (st.st_dev != root.st_dev || st.st_ino != root.st_ino))
        allow(wall, path, READ);
}

/* Paths with ':' between them. */
static void
allow_list(struct wall *wall, const char *list)
{
    char path[PATH_MAX];

    for (const char *at = list ? list : ""; *at; at += *at == ':') {
        const size_t len = strcspn(at, ":");

        if (snprintf(path, sizeof(path), "%.*s", (int)len, at) < (int)sizeof(path) && len > 0)
            allow_reading(wall, path);
        at += len;
    }
}

static void
allow_folder_of(struct wall *wall, const char *path)
{
    char folder[PATH_MAX], *slash;

    if (snprintf(folder, sizeof(folder), "%s", path) >= (int)sizeof(folder))
        return;
    slash = strrchr(folder, '/');
    if (slash && slash != folder) {
        *slash = '\0';
        allow_reading(wall, folder);
    }
}

/* The folder of a library that libcontinuo_torch.so needs. PyTorch's own libraries lie in
 * torch/lib, and those of CUDA in packages beside torch. */
static void
allow_libraries(void *wall, const char *folder)
{
    char beside[PATH_MAX];
    const size_t len = strlen(folder), tail = sizeof("/torch/lib") - 1;

    allow_reading(wall, folder);
    if (len > tail && strcmp(folder + len - tail, "/torch/lib") == 0) {
        snprintf(beside, sizeof(beside), "%.*s", (int)(len - tail), folder);
        allow_reading(wall, beside);
    }
}

static void
allow_programs(struct wall *wall, const struct cn_load *load)
{
    const char *torch = load->torch_library ? load->torch_library : "";
    char program[PATH_MAX], library[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

    if (n > 0) {
        program[n] = '\0';
        allow_folder_of(wall, program);
        cn_library_folders(program, allow_libraries, wall); /* a wheel has libraries of its own */
    }
    if (!*torch && cn_program_path("libcontinuo_torch.so", library, sizeof(library), NULL) == 0)
        torch = library;
    if (*torch) {
        allow_folder_of(wall, torch);
        cn_library_folders(torch, allow_libraries, wall);
    }
    if (load->onnxruntime && *load->onnxruntime)
        allow_reading(wall, load->onnxruntime);
    allow_list(wall, getenv("LD_LIBRARY_PATH"));
}

/* A thread gives another one of its process a name by writing into /proc/self/task/TID/comm. CUDA's
 * driver does so, and cuInit() fails with error 304 if it cannot. All files there concern this
 * worker only; a link there is judged by where it leads. The folder stays open, because the kernel
 * may drop the entry of a folder that nobody has open, and the rule with it. */
static void
allow_thread_names(struct wall *wall)
{
    static int kept = -1;

    kept = open("/proc/self/task", O_PATH | O_CLOEXEC);
    if (kept >= 0)
        allow(wall, "/proc/self/task", LANDLOCK_ACCESS_FS_WRITE_FILE | TRUNCATE);
}

static void
allow_devices(struct wall *wall)
{
    for (size_t i = 0; i < sizeof(devices) / sizeof(*devices); i++) {
        glob_t found = {0};

        if (glob(devices[i], 0, NULL, &found) == 0)
            for (size_t k = 0; k < found.gl_pathc; k++)
                allow(wall, found.gl_pathv[k], USE_DEVICE | LANDLOCK_ACCESS_FS_READ_DIR);
        globfree(&found);
    }
}

/* Tests of the server let workers leave marks in a folder, and sanitizers write reports. */
static void
allow_marks(struct wall *wall)
{
    const char *folder = getenv("CONTINUO_TEST_MARKS"), *once = getenv("CONTINUO_TEST_KILL_ONCE");
    char path[PATH_MAX], *slash;

    if (folder && *folder)
        allow(wall, folder, WRITE);
    if (once && snprintf(path, sizeof(path), "%s", once) < (int)sizeof(path) &&
        (slash = strrchr(path, '/'))) {
        *slash = '\0';
        allow(wall, path, WRITE);
    }
}

static void
allow_all(struct wall *wall, const struct cn_load *load)
{
    const char *at = load->runtime_files.ptr, *end = at + load->runtime_files.len;

    for (size_t i = 0; i < sizeof(readable) / sizeof(*readable); i++)
        allow_reading(wall, readable[i]);
    allow_devices(wall);
    allow_thread_names(wall);
    allow_programs(wall, load);
    for (; at && at < end; at += strlen(at) + 1)
        allow_reading(wall, at);
    allow_list(wall, load->worker_files);
    if (load->model_dir)
        allow_reading(wall, load->model_dir);
    if (load->store_dir && *load->store_dir)
        allow(wall, load->store_dir, WRITE);
    if (load->temp_dir && *load->temp_dir)
        allow(wall, load->temp_dir, WRITE);
    allow_marks(wall);
}

/* Is the caller the only thread? Landlock's walls are around one thread and what it starts. */
static bool
is_alone(void)
{
#if defined(__SANITIZE_THREAD__)
    return true; /* the sanitizer's own thread opens no files */
#else
    DIR *tasks = opendir("/proc/self/task");
    unsigned n = 0;
    struct dirent *entry;

    while (tasks && (entry = readdir(tasks)))
        n += entry->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return n <= 1;
#endif
}

int
cn_file_wall_build(const struct cn_load *load)
{
    const long version =
        syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    struct landlock_ruleset_attr rules = {.handled_access_fs = ALL_OF_FIRST};
    struct wall wall = {0};
    long fd;

    if (version < 0)
        return -1;
    if (version < 2) { /* it forbids to move files to another folder, which mends damaged stores */
        errno = EOPNOTSUPP;
        return -1;
    }
    if (!is_alone()) {
        errno = ENOTUNIQ;
        return -1;
    }
    rules.handled_access_fs |= REFER | (version >= 3 ? TRUNCATE : 0);
    if ((fd = syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0)) < 0)
        return -1;
    wall.fd = (int)fd;
    wall.handled = rules.handled_access_fs;
    allow_all(&wall, load);
    if (!wall.failed && syscall(SYS_landlock_restrict_self, wall.fd, 0) != 0)
        wall.failed = errno;
    close(wall.fd);
    errno = wall.failed;
    return wall.failed ? -1 : 0;
}
