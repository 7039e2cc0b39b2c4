/* worker/process/walls.c - builds the walls around a worker. Worker's thread, before it has others.
 *
 * A process is not dumpable: no other process of the same user can attach to it, or read its memory
 * and its descriptors in /proc. It gains no rights by running a program (a set-user-ID one, for
 * example), and it has none of root's capabilities. A worker that root has started then is a
 * process that owns root's files and can do nothing else that root can.
 */
#include "worker/process/walls.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WHY_BYTES 200

/* Builds one wall. Returns 0, or -1 after it has written into `why` what failed. */
typedef int (*build_fn)(char why[WHY_BYTES]);

static int
because(char why[WHY_BYTES], const char *call)
{
    snprintf(why, WHY_BYTES, "%s failed: %s", call, strerror(errno));
    return -1;
}

static int
hide(char why[WHY_BYTES])
{
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 ? 0 : because(why, "PR_SET_DUMPABLE");
}

static int
keep_rights(char why[WHY_BYTES])
{
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
drop_capabilities(char why[WHY_BYTES])
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

    if (empty_bounding_set(why) != 0)
        return -1;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
        return because(why, "PR_CAP_AMBIENT_CLEAR_ALL");
    return syscall(SYS_capset, &head, none) == 0 ? 0 : because(why, "capset");
}

static const struct {
    const char *name;
    build_fn build;
} walls[] = {
    {"not_dumpable", hide},
    {"no_new_privs", keep_rights},
    {"no_capabilities", drop_capabilities},
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
        if (walls[i].build(why) == 0)
            append(out->standing, sizeof(out->standing), " ", "%s", walls[i].name);
        else
            append(out->lacking, sizeof(out->lacking), "; ", "%s: %s", walls[i].name, why);
    if (load->walls == CN_WALLS_REQUIRE && out->lacking[0])
        return cn_fail(err, CN_E_LOAD_FAILED,
                       "--worker-walls is require, and this system cannot build all walls around "
                       "the worker of model %s: %s",
                       load->model_name, out->lacking);
    return 0;
}
