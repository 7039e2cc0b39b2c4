/* metrics/page/system_metrics.c - processor, memory and disk, from /proc and statvfs. On loop 0.
 *
 * The processor's use is a difference between two readings of /proc/stat, and two readers may ask
 * at nearly the same time. Readings less than half a second apart would be mostly rounding, so the
 * last result is given again until that time has passed. */
#include "metrics/page/system_metrics.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/time/clock.h"

#define LOOK_APART_MS 500
#define MEGABYTE (1024.0 * 1024)
#define GIGABYTE (1024.0 * MEGABYTE)

static const char *
read_text(const char *path, char *out, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, room - 1);

    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = '\0';
    return out;
}

/* user nice system idle iowait irq softirq steal: idle and iowait are not busy. */
int
cn_cpu_times_parse(const char *text, uint64_t *busy, uint64_t *total)
{
    uint64_t t[8] = {0};
    int i;

    if (sscanf(text,
               "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
               " %" SCNu64 " %" SCNu64,
               &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) < 4)
        return -1;
    *total = 0;
    for (i = 0; i < 8; i++)
        *total += t[i];
    *busy = *total - t[3] - t[4];
    return 0;
}

uint64_t
cn_meminfo_bytes(const char *text, const char *name)
{
    size_t len = strlen(name);
    const char *at;

    for (at = text; at; at = strchr(at, '\n')) {
        uint64_t kilobytes;

        at += *at == '\n';
        if (strncmp(at, name, len) == 0 && at[len] == ':' &&
            sscanf(at + len + 1, "%" SCNu64 " kB", &kilobytes) == 1)
            return kilobytes * 1024;
    }
    return 0;
}

static double
percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* The share of busy ticks among all ticks since the last reading; the last result if that was just
 * now or the file cannot be read. */
static double
cpu_percent(struct cn_cpu_times *times)
{
    uint64_t now_ms = cn_now_ms(), busy, total;
    char text[512];

    if (times->looked_ms && now_ms - times->looked_ms < LOOK_APART_MS)
        return times->percent;
    if (cn_cpu_times_parse(read_text("/proc/stat", text, sizeof(text)), &busy, &total))
        return times->percent;
    if (total > times->total)
        times->percent = percent((double)(busy - times->busy), (double)(total - times->total));
    times->busy = busy;
    times->total = total;
    times->looked_ms = now_ms;
    return times->percent;
}

/* DiskUtilization is a share of what an unprivileged user can use, as df shows it: blocks that are
 * reserved for root are left out. */
void
cn_system_metrics(struct cn_cpu_times *times, struct cn_system_metric out[CN_N_SYSTEM_METRICS])
{
    char text[4096];
    const char *info = read_text("/proc/meminfo", text, sizeof(text));
    double memory = (double)cn_meminfo_bytes(info, "MemTotal");
    double available = (double)cn_meminfo_bytes(info, "MemAvailable");
    double disk = 0, free_disk = 0, used_disk = 0;
    struct statvfs root;

    if (statvfs("/", &root) == 0) {
        disk = (double)root.f_blocks * (double)root.f_frsize;
        used_disk = disk - (double)root.f_bfree * (double)root.f_frsize;
        free_disk = (double)root.f_bavail * (double)root.f_frsize;
    }
    out[0] = (struct cn_system_metric){"CPUUtilization", "Percent", cpu_percent(times)};
    out[1] = (struct cn_system_metric){"MemoryUtilization", "Percent",
                                       percent(memory - available, memory)};
    out[2] = (struct cn_system_metric){"MemoryUsed", "Megabytes", (memory - available) / MEGABYTE};
    out[3] = (struct cn_system_metric){"MemoryAvailable", "Megabytes", available / MEGABYTE};
    out[4] = (struct cn_system_metric){"DiskUtilization", "Percent",
                                       percent(used_disk, used_disk + free_disk)};
    out[5] = (struct cn_system_metric){"DiskUsage", "Gigabytes", used_disk / GIGABYTE};
    out[6] = (struct cn_system_metric){"DiskAvailable", "Gigabytes", free_disk / GIGABYTE};
}

bool
cn_is_system_metric(const char *name)
{
    static const char *const names[CN_N_SYSTEM_METRICS] = {
        "CPUUtilization", "MemoryUsed",    "MemoryAvailable", "MemoryUtilization",
        "DiskUsage",      "DiskAvailable", "DiskUtilization"};

    for (unsigned i = 0; i < CN_N_SYSTEM_METRICS; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}
