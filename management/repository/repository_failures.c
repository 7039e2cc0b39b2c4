/* management/repository/repository_failures.c - archives of the store that could not be loaded.
 * Loop 0.
 *
 * A failure is kept until the archive is loaded or gone. The description of the model that was
 * loaded from it before shows the failure, and a metric counts all of them.
 */
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "management/repository/repository_priv.h"

static void
show_count(struct cn_repository *repository)
{
    cn_metrics_set(cn_loop_metrics(repository->management->home), CN_M_REPOSITORY_BROKEN,
                   repository->n_failures);
}

static void
failure_free(struct cn_repository *repository, struct cn_repository_failure *failure)
{
    cn_list_remove(&failure->link);
    repository->n_failures--;
    cn_free(failure->url);
    cn_free(failure->error);
    cn_free(failure);
}

static struct cn_repository_failure *
find(const struct cn_repository *repository, const char *url)
{
    const struct cn_list *node;

    cn_list_for_each(node, &repository->failures) {
        struct cn_repository_failure *failure =
            cn_container_of(node, struct cn_repository_failure, link);

        if (strcmp(failure->url, url) == 0)
            return failure;
    }
    return NULL;
}

const struct cn_repository_failure *
cn_repository_failure(const struct cn_repository *repository, const char *url)
{
    return find(repository, url);
}

void
cn_repository_failed(struct cn_repository *repository, const char *url, const char *error)
{
    struct cn_repository_failure *failure = find(repository, url);

    cn_metrics_add(cn_loop_metrics(repository->management->home), CN_M_REPOSITORY_FAILURES, 1);
    if (!failure) {
        if (repository->n_failures == CN_REPOSITORY_NOTES_MAX)
            failure_free(repository, cn_container_of(repository->failures.next,
                                                     struct cn_repository_failure, link));
        failure = cn_alloc(sizeof *failure);
        failure->url = cn_strdup(url);
        failure->since_wall_ms = cn_wall_ms();
        cn_list_push_back(&repository->failures, &failure->link);
        repository->n_failures++;
    }
    cn_free(failure->error);
    failure->error = cn_strdup(error);
    show_count(repository);
}

void
cn_repository_mended(struct cn_repository *repository, const char *url)
{
    struct cn_repository_failure *failure = find(repository, url);

    if (!failure)
        return;
    failure_free(repository, failure);
    show_count(repository);
}

void
cn_repository_forget_failures(struct cn_repository *repository)
{
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, &repository->failures)
        failure_free(repository, cn_container_of(node, struct cn_repository_failure, link));
}
