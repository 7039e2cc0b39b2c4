/* handlers/modules/module_plan.c - finds the cheapest batches for a number of rows. Worker's
 * thread.
 *
 * The split is found by dynamic programming: the time for n rows is the least sum of a bucket's
 * cost and the time for the rows that this bucket leaves. If buckets of 1, 4 and 8 rows take 100,
 * 150 and 400 us, then six rows are run as 4 + 2 (padded to 4) in 300 us, and not in the bucket of
 * 8. The table has one byte for each number of rows, so a batch only looks it up. */
#include "handlers/modules/module_plan.h"

#include <stdbool.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"

static uint32_t
smallest_for(const struct cn_module_plan *plan, uint32_t left)
{
    for (uint32_t b = 0; b < plan->n; b++)
        if (plan->rows[b] >= left)
            return b;
    return plan->n - 1;
}

void
cn_module_plan_make(struct cn_module_plan *plan, uint32_t max_rows)
{
    bool measured = true;

    cn_assert(plan->n > 0 && plan->n <= CN_MODULE_BUCKETS_MAX);
    for (uint32_t b = 0; b < plan->n; b++)
        measured = measured && plan->cost_us[b] > 0;
    cn_module_plan_fini(plan);
    plan->max_rows = max_rows;
    plan->choice = cn_alloc((size_t)max_rows + 1);
    plan->best_us = cn_alloc(((size_t)max_rows + 1) * sizeof(*plan->best_us));
    for (uint32_t left = 1; left <= max_rows; left++) {
        uint32_t choice = smallest_for(plan, left);

        for (uint32_t b = 0; measured && b < plan->n; b++) {
            uint32_t after = left > plan->rows[b] ? left - plan->rows[b] : 0;
            double us = plan->cost_us[b] + plan->best_us[after];

            if (plan->best_us[left] > 0 && us >= plan->best_us[left])
                continue;
            plan->best_us[left] = us;
            choice = b;
        }
        plan->choice[left] = (uint8_t)choice;
    }
}

void
cn_module_plan_fini(struct cn_module_plan *plan)
{
    cn_free(plan->choice);
    cn_free(plan->best_us);
    plan->choice = NULL;
    plan->best_us = NULL;
}

uint32_t
cn_module_plan_next(const struct cn_module_plan *plan, uint32_t left)
{
    return plan->choice[left < plan->max_rows ? left : plan->max_rows];
}
