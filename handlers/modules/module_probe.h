/* handlers/modules/module_probe.h - checks whether a row's answer depends on other rows. Worker's
 * thread.
 *
 * The server runs rows of different sequences together, and no row may be changed by the others. A
 * model can break this rule: it scales its activations over the whole batch (int8 quantization),
 * uses a length of the first row for all rows, or changes a buffer in place. So the server runs
 * random rows when it loads a model: each one alone, twice, and then all of them in each bucket, in
 * two orders, twice, always with the same seed and from the same states.
 *
 * If a row differs between two runs alone, the module keeps something of its own, and the model is
 * refused. If a row differs in a batch by more than the tolerance, rows are run alone from then on
 * (buckets: [1]), and rt->base.warning says so; with strictBatching the model is refused instead.
 */
#ifndef CN_HANDLERS_MODULES_MODULE_PROBE_H
#define CN_HANDLERS_MODULES_MODULE_PROBE_H

#include <stdint.h>

#include "core/errors/error.h"

struct module_runtime;

enum module_probe_end {
    MODULE_PROBE_OFF,     /* the YAML says so */
    MODULE_PROBE_ALIKE,   /* no row depends on another one */
    MODULE_PROBE_APART,   /* some rows do: each row is run alone */
    MODULE_PROBE_RANDOM,  /* the model draws random numbers: only its memory was checked */
    MODULE_PROBE_SKIPPED, /* the model accepts none of the random rows */
    MODULE_PROBE_SHORT    /* the time was over before all buckets were tried */
};

/* What the probe found; the model's description shows it. */
struct module_probe_result {
    enum module_probe_end end;
    uint32_t rows;
    uint32_t largest; /* the largest bucket that was tried; 0: none */
    uint64_t us;
    double distance; /* the largest one, as a share of the tensor's largest magnitude */
    double tolerance;
    char what[96];     /* where it was: "output y", "state h"; empty: nowhere */
    char reason[512];  /* why it was skipped */
    char changed[256]; /* attributes that runs have changed without a visible effect */
};

/* Call it after the warm-up. Returns 0, or CN_E_LOAD_FAILED with the reason if the model is
 * refused. */
int cn_module_probe(struct module_runtime *rt, struct cn_error *err);

/* Returns the word for the description: "alike", "apart" and so on. */
const char *cn_module_probe_word(enum module_probe_end end);

#endif
