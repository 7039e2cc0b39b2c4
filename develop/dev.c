/* develop/dev.c - continuo dev: serves a folder, and serves it again whenever a file changes. One
 * thread.
 *
 * Each change becomes a version of its own, which one worker loads beside the version that serves.
 * Only when it is loaded, it becomes the default with the swap policy "migrate", so live sequences
 * move to it with their next step and keep their states. If the handler cannot be packed or loaded,
 * nothing changes for the clients, and the reason stands on the screen. A version is unregistered
 * when no sequence lives in it any more.
 *
 * inotify wakes the loop where the file system supports it. What counts is a list of the folder's
 * files with their sizes and times (folder_files.c), which the loop compares twice a second in any
 * case, so that a change on a network file system is found as well. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/system/program_path.h"
#include "ctl/cli.h"
#include "develop/develop.h"
#include "develop/folder_files.h"

#define LOOK_EVERY_MS 500
#define SETTLE_MS 50       /* an editor writes a file in several steps */
#define OLD_VERSIONS_MAX 8 /* each keeps a worker, as long as sequences live in it */

static volatile sig_atomic_t stopping;

struct dev {
    const char *path; /* the folder, or a file in it */
    char dir[PATH_MAX];
    struct cn_project project;
    struct cn_develop_server server;
    unsigned number; /* of the newest version that was packed; 0: none */
    unsigned serving, oldest;
    struct cn_folder_files files; /* of the folder, after it was packed last */
    bool pending;                 /* while it was packed, a file changed that may be the author's */
    bool again;                   /* it is packed only for the sake of such a file */
    int watch;                    /* inotify; -1: there is none */
};

static void
on_signal(int signal)
{
    (void)signal;
    stopping = 1;
}

/* --- versions --- */

static void
unregister(struct dev *dev, unsigned number)
{
    struct cn_buf answer;
    struct cn_error err;
    char path[400];

    cn_buf_init(&answer, 0);
    snprintf(path, sizeof path, "/models/%s/%u", dev->project.name, number);
    cn_develop_manage(&dev->server, "DELETE", path, (struct cn_str){NULL, 0}, &answer, &err);
    snprintf(path, sizeof path, "%.300s/%.64s-%u.mar", dev->server.store, dev->project.name,
             number);
    unlink(path);
    cn_buf_fini(&answer);
}

/* How many sequences live in a version, as the answer about all versions says; -1: unknown. */
static json_int_t
sequences_left(const json_t *versions, unsigned number)
{
    const json_t *version;
    size_t i;

    json_array_foreach(versions, i, version)
    {
        const char *name = json_string_value(json_object_get(version, "modelVersion"));
        const json_t *left = json_object_get(json_object_get(version, "swap"), "sequencesLeft");

        if (name && strtoul(name, NULL, 10) == number)
            return left ? json_integer_value(left) : -1;
    }
    return 0;
}

/* Unregisters versions in which no sequence lives any more, and the oldest where there are many. */
static void
clear_old_versions(struct dev *dev)
{
    struct cn_buf answer;
    struct cn_error err;
    json_t *versions = NULL;
    char path[200];

    if (!dev->serving || dev->oldest >= dev->serving)
        return;
    cn_buf_init(&answer, 0);
    snprintf(path, sizeof path, "/models/%s/all", dev->project.name);
    if (cn_develop_manage(&dev->server, "GET", path, (struct cn_str){NULL, 0}, &answer, &err) == 0)
        versions = json_loadb(answer.data, answer.len, 0, NULL);
    for (; versions && dev->oldest < dev->serving; dev->oldest++) {
        if (dev->serving - dev->oldest <= OLD_VERSIONS_MAX &&
            sequences_left(versions, dev->oldest) != 0)
            break;
        unregister(dev, dev->oldest);
    }
    json_decref(versions);
    cn_buf_fini(&answer);
}

/* Packs the folder, loads it, and makes it the version that serves. */
static int
publish(struct dev *dev, struct cn_error *err)
{
    const char *name = dev->project.name;
    static struct cn_project project; /* what was there before stays known if this one is broken */
    struct cn_buf answer;
    char path[200];
    int rc;

    if ((rc = cn_project_open(dev->path, &project, err)) != 0)
        return rc;
    dev->project = project;
    if ((rc = cn_project_pack(&dev->project, dev->server.store, ++dev->number, err)) != 0)
        return rc;
    rc = cn_develop_register(&dev->server, name, dev->number, err);
    if (rc == 0 && dev->serving) {
        cn_buf_init(&answer, 0);
        snprintf(path, sizeof path, "/models/%s/%u/set-default?swap_policy=migrate", name,
                 dev->number);
        rc = cn_develop_manage(&dev->server, "PUT", path, (struct cn_str){NULL, 0}, &answer, err);
        cn_buf_fini(&answer);
        if (rc)
            unregister(dev, dev->number);
    }
    if (rc)
        return rc;
    if (!dev->serving)
        dev->oldest = dev->number;
    dev->serving = dev->number;
    return 0;
}

/* build.sh has run since the list `before` was made, which is taken. */
static void
look_at_run(struct dev *dev, struct cn_folder_files *before)
{
    struct cn_folder_files after;

    cn_folder_files_list(dev->dir, &after);
    dev->pending = cn_folder_files_built(&after, before, &dev->files, dev->again) ||
                   (!dev->project.has_build && cn_folder_files_differ(&after, before));
    cn_folder_files_fini(before);
    cn_folder_files_fini(&dev->files);
    dev->files = after;
}

static void
try_to_publish(struct dev *dev)
{
    struct cn_folder_files before;
    struct cn_error err;
    int rc;

    cn_folder_files_list(dev->dir, &before);
    rc = publish(dev, &err);
    look_at_run(dev, &before);
    if (rc == 0) {
        cn_develop_say(true, "%s: version %u serves", dev->project.name, dev->serving);
    } else if (dev->serving) {
        cn_develop_error("%s", err.message);
        cn_develop_say(false, "%s: version %u still serves; mend the file and save it",
                       dev->project.name, dev->serving);
    } else {
        cn_develop_error("%s", err.message);
        cn_develop_say(false, "%s: nothing serves yet; mend the file and save it",
                       dev->project.name);
    }
}

/* --- the loop --- */

/* Waits until the folder has changed and is quiet again, or for a moment. */
static bool
has_changed(struct dev *dev)
{
    struct pollfd fd = {.fd = dev->watch, .events = POLLIN};
    struct cn_folder_files now, last;
    char events[4096];
    bool changed;

    poll(&fd, dev->watch >= 0, LOOK_EVERY_MS);
    while (dev->watch >= 0 && read(dev->watch, events, sizeof events) > 0)
        ;
    cn_folder_files_list(dev->dir, &now);
    changed = cn_folder_files_differ(&now, &dev->files) || dev->pending;
    for (bool quiet = !changed; !quiet && !stopping;) {
        last = now;
        poll(NULL, 0, SETTLE_MS);
        cn_folder_files_list(dev->dir, &now);
        quiet = !cn_folder_files_differ(&now, &last);
        cn_folder_files_fini(&last);
    }
    dev->again = changed && !cn_folder_files_differ(&now, &dev->files);
    cn_folder_files_fini(&now);
    return changed;
}

static void
watch(struct dev *dev)
{
    dev->watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (dev->watch >= 0)
        inotify_add_watch(dev->watch, dev->project.dir,
                          IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CREATE);
}

static int
serve(struct dev *dev, const char *inference)
{
    int status = CN_DEVELOP_FINE;

    cn_develop_say(false, "serving %s as %s/predictions/%s; Ctrl-C ends it", dev->project.dir,
                   inference, dev->project.name);
    try_to_publish(dev);
    while (!stopping && !cn_develop_server_ended(&dev->server)) {
        if (has_changed(dev))
            try_to_publish(dev);
        clear_old_versions(dev);
    }
    if (!stopping) {
        cn_develop_error("the server has ended; its last lines above say why");
        status = CN_DEVELOP_FAILED;
    }
    return status;
}

/* The value of a flag, or NULL if argv[*i] is another word or the flag has no value. */
static const char *
value_of(int argc, char **argv, int *i, const char *flag)
{
    return strcmp(argv[*i], flag) == 0 && *i + 1 < argc ? argv[++*i] : NULL;
}

/* Opens the folder and starts the server. What build.sh makes shows when it runs for the first
 * version, because it runs here, too. */
static int
begin(struct dev *dev, const char *inference, const char *management, const char *metrics,
      struct cn_error *err)
{
    const struct sigaction action = {.sa_handler = on_signal};
    static char absolute[PATH_MAX]; /* the same path when build.sh has changed the folder */
    struct cn_folder_files before;
    struct stat st;
    int rc;

    if (!realpath(dev->path, absolute) || stat(absolute, &st) < 0)
        return cn_fail_sys(err, CN_E_NOT_FOUND, errno, "cannot read %.300s", dev->path);
    dev->path = absolute;
    snprintf(dev->dir, sizeof dev->dir, "%s", absolute);
    if (!S_ISDIR(st.st_mode))
        *strrchr(dev->dir, '/') = '\0';
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    cn_folder_files_list(dev->dir, &before);
    rc = cn_project_open(dev->path, &dev->project, err);
    look_at_run(dev, &before);
    dev->again = true;
    if (rc == 0)
        rc = cn_develop_server_start(&dev->server, inference, management, metrics, NULL, err);
    if (rc)
        cn_folder_files_fini(&dev->files);
    return rc;
}

int
cn_develop_dev(int argc, char **argv)
{
    const char *inference = CN_CTL_DEFAULT_INFERENCE, *management = CN_CTL_DEFAULT_MANAGEMENT;
    const char *metrics = CN_CTL_DEFAULT_METRICS, *value;
    static struct dev dev;
    struct cn_error err;
    int status;

    for (int i = 0; i < argc; i++) {
        if ((value = value_of(argc, argv, &i, "--inference")))
            inference = value;
        else if ((value = value_of(argc, argv, &i, "--server")))
            management = value;
        else if ((value = value_of(argc, argv, &i, "--metrics")))
            metrics = value;
        else if (argv[i][0] == '-' || dev.path)
            return fputs("usage: continuo dev [DIR|FILE] [--inference URL] [--server URL] "
                         "[--metrics URL]\n",
                         stderr),
                   CN_DEVELOP_USAGE;
        else
            dev.path = argv[i];
    }
    if (!dev.path)
        dev.path = ".";
    if (begin(&dev, inference, management, metrics, &err)) {
        cn_develop_error("%s", err.message);
        return CN_DEVELOP_FAILED;
    }
    watch(&dev);
    status = serve(&dev, inference);
    if (dev.watch >= 0)
        close(dev.watch);
    cn_folder_files_fini(&dev.files);
    cn_develop_server_stop(&dev.server);
    return status;
}
