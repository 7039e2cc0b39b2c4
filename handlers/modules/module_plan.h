/* handlers/modules/module_plan.h - finds the cheapest batches for a number of rows. Worker's
 * thread.
 *
 * A model runs batches of a few fixed sizes, its buckets. If there are fewer rows, the batch is
 * padded. A larger batch is not always better: two rows at once may cost more than two single runs.
 * So each bucket's time is measured at load, and the cheapest way to split each number of rows into
 * buckets is computed once.
 */
#ifndef CN_HANDLERS_MODULES_MODULE_PLAN_H
#define CN_HANDLERS_MODULES_MODULE_PLAN_H

#include <stdint.h>

#define CN_MODULE_BUCKETS_MAX 32

struct cn_module_plan {
    uint32_t n;                            /* buckets */
    uint32_t rows[CN_MODULE_BUCKETS_MAX];  /* ascending */
    double cost_us[CN_MODULE_BUCKETS_MAX]; /* time of a run; 0: not measured */
    uint32_t max_rows;
    uint8_t *choice; /* by number of rows, up to max_rows: the bucket to run first */
    double *best_us; /* by number of rows: time of all runs */
};

/* Finds the cheapest split of each number of rows up to `max_rows`. If a bucket was not measured,
 * it takes the smallest bucket with room for all rows, or the largest one. `rows`, `n` and
 * `cost_us` must be set. */
void cn_module_plan_make(struct cn_module_plan *plan, uint32_t max_rows);
void cn_module_plan_fini(struct cn_module_plan *plan);
/* Returns the index of the bucket to run next while `left` rows (at least 1) wait. */
uint32_t cn_module_plan_next(const struct cn_module_plan *plan, uint32_t left);

#endif
