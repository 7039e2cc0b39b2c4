/* doctor/doctor_priv.h - what the rules of the doctor share. */
#ifndef CN_DOCTOR_DOCTOR_PRIV_H
#define CN_DOCTOR_DOCTOR_PRIV_H

#include "doctor/doctor.h"

/* Above this share of a limit, a figure becomes a finding. */
#define NEARLY_FULL_PERCENT 80

/* Makes a text that lives as long as the diagnosis. */
#define SAY(diagnosis, ...) cn_arena_printf(&(diagnosis)->arena, __VA_ARGS__)

/* Computes with doubles, because part * 100 could exceed 64 bits. 0 of 0 is 0 percent. */
static inline uint64_t
cn_percent(uint64_t part, uint64_t whole)
{
    return whole ? (uint64_t)((double)part * 100 / (double)whole) : 0;
}

/* Applies the rules about one model. `server` and `wall_ms` are as in cn_ctl_diagnose. */
void cn_ctl_diagnose_model(struct cn_ctl_diagnosis *diagnosis, const struct cn_ctl_model *model,
                           const char *server, uint64_t wall_ms);
/* Applies the rules about the whole server's metrics. */
void cn_ctl_diagnose_metrics(struct cn_ctl_diagnosis *diagnosis, const uint64_t *m,
                             uint64_t wall_ms);

#endif
