/* management/repository/repository_priv.h - the repository's inside, for management's files. Loop
 * 0. */
#ifndef CN_MANAGEMENT_REPOSITORY_REPOSITORY_PRIV_H
#define CN_MANAGEMENT_REPOSITORY_REPOSITORY_PRIV_H

#include "core/containers/list.h"
#include "core/loop/file_thread.h"
#include "management/management_priv.h"
#include "management/repository/repository.h"

/* What became of a name that has no version now; of so many at most, the oldest is forgotten. */
#define CN_REPOSITORY_NOTES_MAX 1000

struct cn_repository_note {
    struct cn_list link;
    char *name, *version, *reason; /* version may be NULL */
};

/* An archive that could not be loaded. */
struct cn_repository_failure {
    struct cn_list link;
    char *url, *error;
    uint64_t since_wall_ms; /* of the first failure in a row */
};

/* An archive of the store, as the last look found it. */
struct cn_repository_seen {
    char *file;
    uint64_t stamp;   /* 0: it is not there any more */
    uint64_t ordered; /* the stamp that it was last to be loaded with */
};

struct cn_repository {
    struct cn_management *management;
    struct cn_list
        jobs; /* loads and unloads, by time of coming; those of one name wait for each other */
    struct cn_list notes; /* struct cn_repository_note */
    uint32_t n_notes;
    struct cn_list failures; /* struct cn_repository_failure */
    uint32_t n_failures;
    struct cn_timer poll_timer;
    bool polling, looked, unsettled; /* at least once; a file is changing just now */
    uint32_t n_seen;
    struct cn_repository_seen *seen;
};

struct cn_repository *cn_repository_create(struct cn_management *management);
void cn_repository_destroy(struct cn_repository *repository);
/* The models of the command line are up: looks at the store from now on, in that mode. */
void cn_repository_started(struct cn_repository *repository);
/* No more looks. */
void cn_repository_stop(struct cn_repository *repository);

/* repository_index.c */
/* What became of the name; reason NULL: it is up again. version NULL: of all its versions. */
void cn_repository_take_note(struct cn_repository *repository, const char *name,
                             const char *version, const char *reason);
void cn_repository_forget_notes(struct cn_repository *repository);
void cn_repository_index(struct cn_repository *repository, struct cn_repository_order *order);
void cn_repository_answer(struct cn_repository_order *order);

/* repository_failures.c */
/* The archive could not be loaded; what is up of it stays. */
void cn_repository_failed(struct cn_repository *repository, const char *url, const char *error);
/* It was loaded, or is gone. */
void cn_repository_mended(struct cn_repository *repository, const char *url);
/* NULL: nothing is wrong with the archive. */
const struct cn_repository_failure *cn_repository_failure(const struct cn_repository *repository,
                                                          const char *url);
void cn_repository_forget_failures(struct cn_repository *repository);

/* repository_poll.c: orders of the server's own, by the archive's name in the store. */
void cn_repository_load_file(struct cn_repository *repository, const char *file);
void cn_repository_unload_file(struct cn_repository *repository, const char *file);

#endif
