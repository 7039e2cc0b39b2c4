/* metrics/page/system_metrics.h - processor, memory and disk of this machine, by the names that
 * TorchServe gives them. */
#ifndef CN_METRICS_PAGE_SYSTEM_METRICS_H
#define CN_METRICS_PAGE_SYSTEM_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#define CN_N_SYSTEM_METRICS 7

struct cn_system_metric {
    const char *name, *unit;
    double value;
};

/* What is kept between two readings of /proc/stat; zeroed at first. */
struct cn_cpu_times {
    uint64_t busy, total; /* ticks since the machine was started */
    uint64_t looked_ms;
    double percent; /* between the last two readings that were half a second apart */
};

/* Fills `out` with all metrics: reads two files of /proc and asks for the size of the root file
 * system. On loop 0. */
void cn_system_metrics(struct cn_cpu_times *times,
                       struct cn_system_metric out[CN_N_SYSTEM_METRICS]);
/* Is this the name of one of the machine's metrics? */
bool cn_is_system_metric(const char *name);
/* Reads the first line of /proc/stat. 0, or -1 if it is something else. Public for tests. */
int cn_cpu_times_parse(const char *text, uint64_t *busy, uint64_t *total);
/* The value of a line "Name:  123 kB", in bytes; 0 if there is none. Public for tests. */
uint64_t cn_meminfo_bytes(const char *text, const char *name);

#endif
