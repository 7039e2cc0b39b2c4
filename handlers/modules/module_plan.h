/* handlers/modules/module_plan.h - into which batches a number of rows is best cut. Worker's
 * thread.
 *
 * A model runs batches of a few fixed sizes, its buckets; what is missing is padded. Larger is not
 * always better: two rows at once may cost more than two single runs. So each bucket's time is
 * measured at load, and every number of rows has the cheapest way to be cut, found once.
 */
#ifndef CN_HANDLERS_MODULES_MODULE_PLAN_H
#define CN_HANDLERS_MODULES_MODULE_PLAN_H

#include <stdint.h>

#define CN_MODULE_BUCKETS_MAX 32

struct cn_module_plan {
    uint32_t n;                            /* buckets */
    uint32_t rows[CN_MODULE_BUCKETS_MAX];  /* rising */
    double cost_us[CN_MODULE_BUCKETS_MAX]; /* of a run; 0: not measured */
    uint32_t max_rows;
    uint8_t *choice; /* max_rows + 1: the bucket to run first */
    double *best_us; /* of all runs */
};

/* Finds the cheapest cuts of up to `max_rows` rows. Where a bucket was not measured: the smallest
 * that takes all rows, else the largest. `rows`, `n` and `cost_us` are set. */
void cn_module_plan_make(struct cn_module_plan *plan, uint32_t max_rows);
void cn_module_plan_fini(struct cn_module_plan *plan);
/* The bucket (index) to run next while `left` rows, at least 1, wait. */
uint32_t cn_module_plan_next(const struct cn_module_plan *plan, uint32_t left);

#endif
