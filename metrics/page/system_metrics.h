/* metrics/page/system_metrics.h - processor, memory and disk of this machine, as TorchServe tells
 * them. */
#ifndef CN_METRICS_PAGE_SYSTEM_METRICS_H
#define CN_METRICS_PAGE_SYSTEM_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#define CN_N_SYSTEM_METRICS 7

struct cn_system_metric {
    const char *name, *unit;
    double value;
};

/* What two looks at /proc/stat need; zeroed at first. */
struct cn_cpu_times {
    uint64_t busy, total; /* since boot */
    uint64_t looked_ms;
    double percent; /* between the last two looks that were half a second apart */
};

/* On loop 0; reads two files of /proc and asks for the root file system's size. */
void cn_system_metrics(struct cn_cpu_times *times,
                       struct cn_system_metric out[CN_N_SYSTEM_METRICS]);
/* Is it the name of one of them? */
bool cn_is_system_metric(const char *name);
/* The first line of /proc/stat; 0, or -1: it isn't that. For tests. */
int cn_cpu_times_parse(const char *text, uint64_t *busy, uint64_t *total);
/* The value of a line "Name:  123 kB", in bytes; 0: there is none. For tests. */
uint64_t cn_meminfo_bytes(const char *text, const char *name);

#endif
