/* management/repository/repository_priv.h - the repository's structs, for the files of management/.
 * Loop 0. */
#ifndef CN_MANAGEMENT_REPOSITORY_REPOSITORY_PRIV_H
#define CN_MANAGEMENT_REPOSITORY_REPOSITORY_PRIV_H

#include "core/containers/list.h"
#include "core/loop/file_thread.h"
#include "management/management_priv.h"
#include "management/repository/repository.h"

/* A note says why a name has no version now. At most this many are kept: beyond it, each new note
 * removes the oldest one. */
#define CN_REPOSITORY_NOTES_MAX 1000

struct cn_repository_note {
    struct cn_list link;
    char *name, *version, *reason; /* version may be NULL */
};

/* An archive that could not be loaded. */
struct cn_repository_failure {
    struct cn_list link;
    char *url, *error;
    uint64_t since_wall_ms; /* time of the first failure in a row */
};

/* An archive of the store, as the last look found it. */
struct cn_repository_seen {
    char *file;
    uint64_t stamp;   /* 0: the file is gone */
    uint64_t ordered; /* the stamp that it had when the last load was requested */
};

struct cn_repository {
    struct cn_management *management;
    /* loads and unloads in the order in which they were requested; two that concern the same name
     * never run at the same time */
    struct cn_list jobs;
    struct cn_list notes; /* struct cn_repository_note */
    uint32_t n_notes;
    struct cn_list failures; /* struct cn_repository_failure */
    uint32_t n_failures;
    struct cn_timer poll_timer;
    bool polling, looked,
        unsettled; /* looked: at least once; unsettled: a file is changing just now */
    uint32_t n_seen;
    struct cn_repository_seen *seen;
};

struct cn_repository *cn_repository_create(struct cn_management *management);
void cn_repository_destroy(struct cn_repository *repository);
/* Tells that the models of the command line are loaded. In poll mode, the store is looked at
 * regularly from now on. */
void cn_repository_started(struct cn_repository *repository);
/* The store is not looked at any more. */
void cn_repository_stop(struct cn_repository *repository);

/* repository_index.c */
/* Notes why a version is not loaded; NULL for `version` means all versions of the name. NULL for
 * `reason` means that it is loaded again, and removes the note. */
void cn_repository_take_note(struct cn_repository *repository, const char *name,
                             const char *version, const char *reason);
void cn_repository_forget_notes(struct cn_repository *repository);
void cn_repository_index(struct cn_repository *repository, struct cn_repository_order *order);

/* repository_order.c */
/* 0, or a refusal, which is in order->err as well: the server is stopping, the mode of control does
 * not allow it, or the name cannot be a model's. */
int cn_repository_check(struct cn_repository_order *order);
/* Sends the order back to its loop and ends its operation. */
void cn_repository_answer(struct cn_repository_order *order);

/* repository_failures.c */
/* Notes that the archive could not be loaded; versions of it that are up stay. */
void cn_repository_failed(struct cn_repository *repository, const char *url, const char *error);
/* The archive was loaded or is gone: its failure is forgotten. */
void cn_repository_mended(struct cn_repository *repository, const char *url);
/* The failure of an archive; NULL: nothing is wrong with it. */
const struct cn_repository_failure *cn_repository_failure(const struct cn_repository *repository,
                                                          const char *url);
void cn_repository_forget_failures(struct cn_repository *repository);

/* repository_poll.c: the server itself asks for a load or an unload, by the archive's name in the
 * store. */
void cn_repository_load_file(struct cn_repository *repository, const char *file);
void cn_repository_unload_file(struct cn_repository *repository, const char *file);

#endif
