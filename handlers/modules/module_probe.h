/* handlers/modules/module_probe.h - does a row's answer depend on other rows? Worker's thread.
 *
 * The server runs rows of different sequences together and promises that nobody notices. A model
 * can break that: it scales its activations over the whole batch (int8 quantization), reads a
 * length of the first row for all, or changes a buffer in place. So random rows are run when a
 * model is loaded: each alone, twice, and then in each bucket, in two orders, twice, always with
 * the same seed and from the same state.
 *
 * Rows that differ between two runs alone: the module keeps something of its own, and the model is
 * refused. Rows that differ beyond the tolerance in a batch: they are run alone from here on
 * (buckets: [1]), and rt->base.warning says so; with strictBatching the model is refused.
 */
#ifndef CN_HANDLERS_MODULES_MODULE_PROBE_H
#define CN_HANDLERS_MODULES_MODULE_PROBE_H

#include <stdint.h>

#include "core/errors/error.h"

struct module_runtime;

enum module_probe_end {
    MODULE_PROBE_OFF,     /* the YAML says so */
    MODULE_PROBE_ALIKE,   /* no row depends on another one */
    MODULE_PROBE_APART,   /* some do: each is run alone */
    MODULE_PROBE_RANDOM,  /* the model draws random numbers: only its memory could be looked at */
    MODULE_PROBE_SKIPPED, /* it takes none of the random rows */
    MODULE_PROBE_SHORT    /* time was up before all buckets were tried */
};

/* What it found, for those who ask. */
struct module_probe_result {
    enum module_probe_end end;
    uint32_t rows;
    uint32_t largest; /* bucket that was tried; 0: none */
    uint64_t us;
    double distance; /* the largest that was seen, as a share of the tensor's largest magnitude */
    double tolerance;
    char what[96];     /* where: "output y", "state h"; empty: nowhere */
    char reason[512];  /* of SKIPPED */
    char changed[256]; /* attributes that runs have changed, without an effect that was seen */
};

/* After the warm-up. CN_E_LOAD_FAILED: refused, with the reason. */
int cn_module_probe(struct module_runtime *rt, struct cn_error *err);

/* "alike", "apart" ... */
const char *cn_module_probe_word(enum module_probe_end end);

#endif
