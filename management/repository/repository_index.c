/* management/repository/repository_index.c - what the repository has, and in which state. Loop 0;
 * the store is listed on the file thread.
 *
 * The index has three kinds of entries, in this order: versions of the registry with their states;
 * notes, which say what became of names that have no version now (unloaded, or could not be
 * loaded); and archives of the store that no version was made from, by name only. A name is shown
 * once. Notes are bounded; the oldest one is forgotten.
 */
#include <string.h>

#include "core/memory/mem.h"
#include "management/repository/model_store.h"
#include "management/repository/repository_priv.h"

struct listing {
    struct cn_repository *repository;
    struct cn_repository_order *order;
    struct cn_file_task task;
    char **files;
    uint32_t n_files, room; /* room: how many order->entries have space */
};

/* --- notes of names that are not up */

static void
note_free(struct cn_repository_note *note)
{
    cn_list_remove(&note->link);
    cn_free(note->name);
    cn_free(note->version);
    cn_free(note->reason);
    cn_free(note);
}

void
cn_repository_take_note(struct cn_repository *repository, const char *name, const char *version,
                        const char *reason)
{
    struct cn_repository_note *note;
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, &repository->notes) {
        note = cn_container_of(node, struct cn_repository_note, link);
        if (strcmp(note->name, name) == 0 &&
            (!version || !note->version || strcmp(note->version, version) == 0)) {
            note_free(note);
            repository->n_notes--;
        }
    }
    if (!reason)
        return;
    if (repository->n_notes == CN_REPOSITORY_NOTES_MAX) {
        note_free(cn_container_of(repository->notes.next, struct cn_repository_note, link));
        repository->n_notes--;
    }
    note = cn_alloc(sizeof *note);
    note->name = cn_strdup(name);
    note->version = version ? cn_strdup(version) : NULL;
    note->reason = cn_strdup(reason);
    cn_list_push_back(&repository->notes, &note->link);
    repository->n_notes++;
}

void
cn_repository_forget_notes(struct cn_repository *repository)
{
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, &repository->notes)
        note_free(cn_container_of(node, struct cn_repository_note, link));
    repository->n_notes = 0;
}

/* --- the index */

static void
add(struct listing *listing, const char *name, const char *version, const char *state,
    const char *reason)
{
    struct cn_repository_order *order = listing->order;
    struct cn_repository_entry *more;

    if (order->ready_only && (!state || strcmp(state, "READY") != 0))
        return;
    if (order->n_entries == listing->room) {
        listing->room = listing->room ? 2 * listing->room : 16;
        more = cn_arena_alloc(&order->arena, listing->room * sizeof *more);
        if (order->n_entries)
            memcpy(more, order->entries, order->n_entries * sizeof *more);
        order->entries = more;
    }
    order->entries[order->n_entries++] = (struct cn_repository_entry){
        .name = cn_arena_strndup(&order->arena, name, strlen(name)),
        .version = version ? cn_arena_strndup(&order->arena, version, strlen(version)) : NULL,
        .state = state,
        .reason = reason ? cn_arena_strndup(&order->arena, reason, strlen(reason)) : NULL,
    };
}

static void
add_versions(struct listing *listing)
{
    struct cn_registry *registry = listing->repository->management->registry;
    struct cn_list *m, *v;

    cn_list_for_each(m, cn_registry_models(registry)) {
        cn_list_for_each(v, &cn_container_of(m, struct cn_model, link)->versions) {
            const struct cn_version *version = cn_container_of(v, struct cn_version, link);
            bool up = version->phase == CN_VERSION_UP;

            if (!up)
                add(listing, version->about.name, version->about.version, "LOADING", NULL);
            else if (cn_worker_pool_is_ready(&version->health))
                add(listing, version->about.name, version->about.version, "READY", NULL);
            else
                add(listing, version->about.name, version->about.version, "UNAVAILABLE",
                    "no worker is ready");
        }
    }
    cn_list_for_each(v, cn_registry_closing(registry)) {
        const struct cn_version *version = cn_container_of(v, struct cn_version, link);

        add(listing, version->about.name, version->about.version, "UNLOADING", NULL);
    }
}

static bool
is_listed(const struct listing *listing, const char *name, const char *version)
{
    const struct cn_repository_order *order = listing->order;

    for (uint32_t i = 0; i < order->n_entries; i++)
        if (strcmp(order->entries[i].name, name) == 0 &&
            (!version || !order->entries[i].version ||
             strcmp(order->entries[i].version, version) == 0))
            return true;
    return false;
}

/* Was a version made from this archive? */
static bool
is_used(const struct listing *listing, const char *file)
{
    struct cn_list *m, *v;

    cn_list_for_each(m, cn_registry_models(listing->repository->management->registry))
        cn_list_for_each(v, &cn_container_of(m, struct cn_model, link)->versions)
            if (strcmp(cn_container_of(v, struct cn_version, link)->about.url, file) == 0)
                return true;
    return false;
}

static void
done_list(struct cn_file_task *task)
{
    struct listing *listing = cn_container_of(task, struct listing, task);
    struct cn_repository_order *order = listing->order;
    struct cn_list *node;

    order->n_entries = listing->room = 0;
    order->entries = NULL;
    add_versions(listing);
    cn_list_for_each(node, &listing->repository->notes) {
        const struct cn_repository_note *note =
            cn_container_of(node, struct cn_repository_note, link);

        if (!is_listed(listing, note->name, note->version))
            add(listing, note->name, note->version, "UNAVAILABLE", note->reason);
    }
    for (uint32_t i = 0; i < listing->n_files; i++) {
        char *name = cn_model_store_stem(listing->files[i]);

        if (!is_used(listing, listing->files[i]) && !is_listed(listing, name, NULL))
            add(listing, name, NULL, NULL, NULL);
        cn_free(name);
        cn_free(listing->files[i]);
    }
    cn_free(listing->files);
    cn_free(listing);
    cn_repository_answer(order);
}

static void
work_list(struct cn_file_task *task)
{
    struct listing *listing = cn_container_of(task, struct listing, task);
    struct cn_error err;

    /* A store that cannot be read has nothing to list; a load says why. */
    (void)cn_model_store_list(listing->repository->management->config->model_store, &listing->files,
                              &listing->n_files, &err);
}

/* Answers an index. Archives that are not loaded are listed only where clients may load them. */
void
cn_repository_index(struct cn_repository *repository, struct cn_repository_order *order)
{
    struct listing *listing = cn_alloc(sizeof *listing);

    listing->repository = repository;
    listing->order = order;
    if (repository->management->config->model_control_mode == CN_CONTROL_NONE) {
        done_list(&listing->task);
        return;
    }
    listing->task.work = work_list;
    listing->task.done = done_list;
    cn_file_thread_run(repository->management->files, &listing->task);
}
