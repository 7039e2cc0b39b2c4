/* develop/folder_files.h - the files of a model's folder, and which of them build.sh makes. One
 * thread. */
#ifndef CN_DEVELOP_FOLDER_FILES_H
#define CN_DEVELOP_FOLDER_FILES_H

#include <stdbool.h>
#include <stddef.h>

struct cn_folder_file;

/* Zeroed: no files. */
struct cn_folder_files {
    struct cn_folder_file *at; /* in the order of their names' hashes */
    size_t n;
};

/* Lists the files that count: neither hidden ones, nor those that editors make, nor what the
 * archive does not get. Free the list with cn_folder_files_fini(). */
void cn_folder_files_list(const char *dir, struct cn_folder_files *out);
void cn_folder_files_fini(struct cn_folder_files *files);

/* Is a file new, gone, or another one? */
bool cn_folder_files_differ(const struct cn_folder_files *a, const struct cn_folder_files *b);

/* build.sh ran between the lists `before` and `after`. `last` is the list that followed the run
 * before that one. Finds the files that build.sh makes, and notes them in `after`: those that have
 * changed in both runs, if nothing but them was the reason for the second one (`again`). They stay
 * known as long as each run changes them. Returns true if another file has changed during the run;
 * the author may have saved it, so it needs a run of its own. */
bool cn_folder_files_built(struct cn_folder_files *after, const struct cn_folder_files *before,
                           const struct cn_folder_files *last, bool again);

#endif
