/* worker/process/walls.c - builds the walls around a worker. Worker's thread, before it has others.
 *
 * The first walls take rights away. The worker is not dumpable any more, so no other process of the
 * same user can attach to it, or read its memory and its descriptors in /proc. It gains no rights
 * by running a program (a set-user-ID one, for example), and it loses all of root's capabilities. A
 * worker that root has started then owns root's files, and can do nothing else that only root can.
 */
#include "worker/process/walls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/process/call_filter.h"
#include "worker/process/file_wall.h"

#define WHY_BYTES 200

/* Debian 12's header of Landlock is older than these. */
#define MOVE_FILES (UINT64_C(1) << 13)
#define SCOPE_ABSTRACT_SOCKETS 1u
#define SCOPE_SIGNALS 2u
#define SCOPE_VERSION 6

/* Builds one wall. Returns 0, or -1 after it has written into `why` what failed. */
typedef int (*build_fn)(const struct cn_load *load, char why[WHY_BYTES]);

static int
because(char why[WHY_BYTES], const char *call)
{
    snprintf(why, WHY_BYTES, "%s failed: %s", call, strerror(errno));
    return -1;
}

static int
hide(const struct cn_load *load, char why[WHY_BYTES])
{
    (void)load;
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 ? 0 : because(why, "PR_SET_DUMPABLE");
}

static int
keep_rights(const struct cn_load *load, char why[WHY_BYTES])
{
    (void)load;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : because(why, "PR_SET_NO_NEW_PRIVS");
}

/* Empties the bounding set. Only a process with CAP_SETPCAP can. For others the set means nothing:
 * it bounds what a program brings along, and no program brings anything after
 * PR_SET_NO_NEW_PRIVS. */
static int
empty_bounding_set(char why[WHY_BYTES])
{
    int held;

    for (int capability = 0; (held = prctl(PR_CAPBSET_READ, capability)) >= 0; capability++)
        if (held && prctl(PR_CAPBSET_DROP, capability) != 0 && errno != EPERM)
            return because(why, "PR_CAPBSET_DROP");
    return 0;
}

static int
drop_capabilities(const struct cn_load *load, char why[WHY_BYTES])
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

    (void)load;
    if (empty_bounding_set(why) != 0)
        return -1;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
        return because(why, "PR_CAP_AMBIENT_CLEAR_ALL");
    return syscall(SYS_capset, &head, none) == 0 ? 0 : because(why, "capset");
}

/* Signals and abstract Unix sockets of processes that do not stand behind this wall. Once a process
 * has two rule sets of Landlock, each of them forbids to move a file to another folder unless it
 * allows it. This one has no other rules for files, and so allows it everywhere: the store moves a
 * new file over a damaged one (store/journal/journal_guard.c), and file_wall.c says where. */
static int
scope_signals(const struct cn_load *load, char why[WHY_BYTES])
{
    const struct {
        uint64_t files, ports, scoped;
    } rules = {.files = MOVE_FILES, .scoped = SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS};
    struct landlock_path_beneath_attr everywhere = {.allowed_access = MOVE_FILES};
    const long version =
        syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    long fd;
    int rc;

    (void)load;
    if (version < 0)
        return because(why, "Landlock");
    if (version < SCOPE_VERSION) {
        snprintf(why, WHY_BYTES, "the kernel has version %ld of Landlock, and this needs %d",
                 version, SCOPE_VERSION);
        return -1;
    }
    if ((fd = syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0)) < 0)
        return because(why, "landlock_create_ruleset");
    everywhere.parent_fd = open("/", O_PATH | O_CLOEXEC);
    if (syscall(SYS_landlock_add_rule, fd, LANDLOCK_RULE_PATH_BENEATH, &everywhere, 0) != 0)
        rc = because(why, "landlock_add_rule");
    else
        rc = syscall(SYS_landlock_restrict_self, fd, 0) == 0
                 ? 0
                 : because(why, "landlock_restrict_self");
    if (everywhere.parent_fd >= 0)
        close(everywhere.parent_fd);
    close((int)fd);
    return rc;
}

static int
shut_files(const struct cn_load *load, char why[WHY_BYTES])
{
    if (cn_file_wall_build(load) == 0)
        return 0;
    if (errno != ENOTUNIQ)
        return because(why, "Landlock");
    snprintf(why, WHY_BYTES, "the interpreter has started threads, which would stay outside");
    return -1;
}

static bool
may_connect(const struct cn_load *load)
{
    return load->network || (load->state_store && load->state_store[0]);
}

/* A Lua handler cannot start programs, so code that tries to start one has left the sandbox. Builds
 * with a sanitizer are an exception: it starts a program to write its report. */
static bool
stays_alone(const struct cn_load *load)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)load;
    return false;
#else
    return load->runtime && strcmp(load->runtime, "lua") == 0;
#endif
}

static int
filter_calls(const struct cn_load *load, char why[WHY_BYTES])
{
    const struct cn_call_rules rules = {.network = may_connect(load), .alone = stays_alone(load)};

    return cn_call_filter_install(&rules) == 0 ? 0 : because(why, "seccomp");
}

static const struct {
    const char *name;
    build_fn build;
} walls[] = {
    {"not_dumpable", hide},
    {"no_new_privs", keep_rights},
    {"no_capabilities", drop_capabilities},
    {"no_signals", scope_signals},
    {"own_files", shut_files},
    {"seccomp", filter_calls}, /* the last one, because it refuses calls that the others need */
};

static void
append(char *text, size_t bytes, const char *between, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;

    if (used > 0)
        used += (size_t)snprintf(text + used, bytes - used, "%s", between);
    if (used >= bytes)
        return;
    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

int
cn_walls_raise(const struct cn_load *load, struct cn_walls *out, struct cn_error *err)
{
    char why[WHY_BYTES];

    *out = (struct cn_walls){0};
    if (load->walls == CN_WALLS_OFF)
        return 0;
    for (size_t i = 0; i < sizeof(walls) / sizeof(*walls); i++)
        if (walls[i].build(load, why) == 0)
            append(out->standing, sizeof(out->standing), " ", "%s", walls[i].name);
        else
            append(out->lacking, sizeof(out->lacking), "; ", "%s: %s", walls[i].name, why);
    if (strstr(out->standing, "seccomp") && !may_connect(load))
        append(out->standing, sizeof(out->standing), " ", "no_network");
    if (load->walls == CN_WALLS_REQUIRE && out->lacking[0])
        return cn_fail(err, CN_E_LOAD_FAILED,
                       "--worker-walls is require, and this system cannot build all walls around "
                       "the worker of model %s: %s",
                       load->model_name, out->lacking);
    return 0;
}
