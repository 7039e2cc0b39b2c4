/* develop/develop.h - continuo demo, new, dev and test: a first look, and a model from its first
 * file to its archive. One thread. */
#ifndef CN_DEVELOP_DEVELOP_H
#define CN_DEVELOP_DEVELOP_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "ctl/http_client.h"

#define CN_DEVELOP_NAME_MAX 64

/* The exit statuses. */
#define CN_DEVELOP_FINE 0
#define CN_DEVELOP_FAILED 1
#define CN_DEVELOP_USAGE 2

/* The commands; argv has the words behind the command. Each returns the exit status. */
int cn_develop_demo(int argc, char **argv);
int cn_develop_new(int argc, char **argv);
int cn_develop_dev(int argc, char **argv);
int cn_develop_test(int argc, char **argv);

/* --- screen.c: messages for people --- */

/* Prints "continuo: error: ..." in red on a terminal. */
void cn_develop_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Prints a line, in green on a terminal if `good`. */
void cn_develop_say(bool good, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* --- scaffold.c: the files of a new model --- */

/* Writes a file, which others may run if it is a `program`. An existing one is never overwritten.
 * CN_E_IO. */
int cn_develop_write_file(const char *path, struct cn_str bytes, bool program,
                          struct cn_error *err);

/* --- project.c: the folder of a model --- */

struct cn_project {
    char dir[PATH_MAX];                 /* absolute */
    char name[CN_DEVELOP_NAME_MAX + 1]; /* of the folder, and of the model */
    char handler[NAME_MAX + 1];         /* handler.lua; or "" */
    char serialized[NAME_MAX + 1];      /* model.pt; or "" */
    bool has_config;
    bool has_build; /* build.sh makes the handler or the model */
};

/* Finds out what `path`, a folder or a handler's file in it, has. Runs build.sh before that if it
 * is there. CN_E_NOT_FOUND or CN_E_BAD_REQUEST. */
int cn_project_open(const char *path, struct cn_project *out, struct cn_error *err);
/* Packs it with continuo-archiver as STORE/NAME-NUMBER.mar. The archiver prints what is wrong to
 * standard error; the error says only that it failed. */
int cn_project_pack(const struct cn_project *project, const char *store, unsigned number,
                    struct cn_error *err);

/* --- child.c: programs of Continuo as children --- */

/* Runs a program that stands beside this one, or argv[0] if `program` is NULL, and waits for its
 * end. Returns its exit status, or 127
 * if it cannot be started. `quiet`: without its standard output. */
int cn_develop_run(const char *program, const char *const *argv, bool quiet);

struct cn_develop_server {
    pid_t pid;
    char home[PATH_MAX];  /* a temporary folder, which the end removes */
    char store[PATH_MAX]; /* the model store in it */
    char inference[PATH_MAX], management[PATH_MAX], metrics[PATH_MAX]; /* addresses */
    struct cn_ctl_http *http;
};

/* Starts a server without models in a temporary folder, and waits until it answers. An address
 * that is NULL is a unix socket in that folder. `log`: where its log goes, a file; NULL: to
 * standard error. The server ends with this process. */
int cn_develop_server_start(struct cn_develop_server *server, const char *inference,
                            const char *management, const char *metrics, const char *log,
                            struct cn_error *err);
/* Stops it and removes its folder. */
void cn_develop_server_stop(struct cn_develop_server *server);
/* Has the server ended by itself? */
bool cn_develop_server_ended(struct cn_develop_server *server);
/* Makes a management request, patiently. The error has the server's own message. */
int cn_develop_manage(struct cn_develop_server *server, const char *method, const char *path,
                      struct cn_str body, struct cn_buf *answer, struct cn_error *err);
/* Registers NAME-NUMBER.mar with one worker and waits until it is loaded. */
int cn_develop_register(struct cn_develop_server *server, const char *name, unsigned number,
                        struct cn_error *err);

#endif
