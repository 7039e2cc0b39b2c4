/* management/cluster/wanted_priv.h - what wanted.c and wanted_log.c share. No state, any thread. */
#ifndef CN_MANAGEMENT_CLUSTER_WANTED_PRIV_H
#define CN_MANAGEMENT_CLUSTER_WANTED_PRIV_H

#include <jansson.h>

#include "management/cluster/wanted.h"

/* What an error calls the part of the text that is read. */
struct cn_wanted_entry {
    const char *what;
    uint32_t number;
    bool is_whole; /* nothing that a registration needs may be missing */
};

int cn_wanted_take_model(const json_t *from, const struct cn_wanted_entry *entry,
                         struct cn_wanted_model *model, struct cn_error *err);
json_t *cn_wanted_show_model(const struct cn_wanted_model *model);
void cn_wanted_copy_model(struct cn_wanted_model *to, const struct cn_wanted_model *from);

/* wanted_log.c */
int cn_wanted_take_log(const json_t *root, struct cn_wanted *out, struct cn_error *err);
void cn_wanted_show_log(const struct cn_wanted *wanted, json_t *root);
/* Appends a copy of the change to the log, and forgets the oldest one if the log is full. */
void cn_wanted_note(struct cn_wanted *wanted, const struct cn_wanted_change *change);

#endif
