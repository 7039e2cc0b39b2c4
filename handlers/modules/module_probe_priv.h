/* handlers/modules/module_probe_priv.h - declares what module_probe.c and module_probe_rows.c
 * share. Worker's thread. */
#ifndef CN_HANDLERS_MODULES_MODULE_PROBE_PRIV_H
#define CN_HANDLERS_MODULES_MODULE_PROBE_PRIV_H

#include "handlers/modules/module.h"

#define PROBE_ROWS_MAX 8
#define PROBE_ROWS_MIN 3
/* The time limit of the whole probe. A model whose runs take long is probed less thoroughly. */
#define PROBE_MAX_US 2000000
/* The sequences have different ages: that of row r has had r % AGES steps. */
#define AGES 3

/* An output or a state of a row that has run. */
struct result {
    char *data;
    struct module_place place; /* its shape */
};

/* A row's results: outputs, then states. */
struct results {
    struct result *list;
};

struct probe {
    struct module_runtime *rt;
    struct module_probe_result *found;
    struct cn_arena arena; /* holds inputs, and the arrays below */
    uint32_t n;            /* rows */
    struct cn_item *shells;
    struct module_item *items;
    struct module_row *rows;
    struct module_state **begin; /* each row's state before its step; NULL: no states */
    struct results *alone;
    uint32_t alike[PROBE_ROWS_MAX], n_alike; /* rows that may be in one run with the first one */
    uint64_t random, until_us, seed;
    double lowest; /* lowest random float: -1, or 0 if the model refuses negative ones */
};

/* Makes the rows; they have no inputs and no states yet. cn_probe_end() frees all. */
void cn_probe_make(struct probe *probe, struct module_runtime *rt);
void cn_probe_end(struct probe *probe);
void cn_probe_forget_states(struct probe *probe);

/* Gives the row new random inputs. */
int cn_probe_fill_row(struct probe *probe, uint32_t row, struct cn_error *err);

/* Runs these rows, each from its state before the step. With `alone` they run in the bucket in
 * which one row runs. */
int cn_probe_run(struct probe *probe, const uint32_t *rows, uint32_t k, uint32_t bucket,
                 struct cn_error *err);
int cn_probe_run_alone(struct probe *probe, uint32_t row, struct cn_error *err);

/* Keeps the present results of the row as those that it gives alone. */
int cn_probe_keep_results(struct probe *probe, uint32_t row, struct results *to,
                          struct cn_error *err);
/* Compares the present results of the row with those that it gave alone. probe->found keeps the
 * largest difference. */
void cn_probe_compare(struct probe *probe, uint32_t row);

#endif
