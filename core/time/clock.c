/* core/time/clock.c - reads the clocks and adds what a test has moved them by. Any thread.
 *
 * Nothing in the project reads a clock in another way, so a test can let an hour pass in no time:
 * end to end through a file that all processes map, in unit tests through two variables. The
 * monotonic and the wall clock move together; the wall clock can also be moved alone, as an
 * administrator or NTP might do. Without a test the cost is two branches that the processor
 * predicts. */
#include "core/time/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/errors/panic.h"

#define FROZEN_AT_MS UINT64_C(1000000)
#define FROZEN_AT_WALL_MS UINT64_C(1700000000000)

/* The mapped file of CONTINUO_TEST_CLOCK; NULL in normal use. Set before main and never changed. */
static const int64_t *shared_ahead_ms, *shared_wall_ms;
/* What cn_clock_freeze and cn_clock_advance set. Loops in other threads read it, so the loads are
 * atomic. */
static int frozen;
static uint64_t own_ahead_ms;

/* Runs before main, so that reading the clock needs no check whether it was done. If the file
 * cannot be used, the process stops at once, because a test would otherwise wait for hours. */
__attribute__((constructor)) static void
map_test_clock(void)
{
    const char *path = getenv("CONTINUO_TEST_CLOCK");
    struct stat st;
    void *map;
    int fd;

    if (!path || !*path)
        return;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        cn_panic(__FILE__, __LINE__, "CONTINUO_TEST_CLOCK=%s: %s", path, strerror(errno));
    if (fstat(fd, &st) < 0 || st.st_size < (off_t)sizeof(*shared_ahead_ms))
        cn_panic(__FILE__, __LINE__, "CONTINUO_TEST_CLOCK=%s does not name a file of 8 bytes",
                 path);
    map = mmap(NULL, 2 * sizeof(*shared_ahead_ms), PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        cn_panic(__FILE__, __LINE__, "CONTINUO_TEST_CLOCK=%s: %s", path, strerror(errno));
    close(fd);
    shared_ahead_ms = map;
    shared_wall_ms = shared_ahead_ms + 1; /* zeros behind a shorter file */
}

static uint64_t
ahead_us(void)
{
    uint64_t ahead = __atomic_load_n(&own_ahead_ms, __ATOMIC_RELAXED) * 1000;

    if (__builtin_expect(shared_ahead_ms != NULL, 0))
        ahead += (uint64_t)__atomic_load_n(shared_ahead_ms, __ATOMIC_RELAXED) * 1000;
    return ahead;
}

static uint64_t
read_us(clockid_t id, uint64_t frozen_at_ms)
{
    struct timespec t;

    if (__builtin_expect(__atomic_load_n(&frozen, __ATOMIC_RELAXED), 0))
        return frozen_at_ms * 1000 + ahead_us();
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000 + ahead_us();
}

uint64_t
cn_now_us(void)
{
    return read_us(CLOCK_MONOTONIC, FROZEN_AT_MS);
}

uint64_t
cn_now_ms(void)
{
    return cn_now_us() / 1000;
}

uint64_t
cn_cpu_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t
cn_wall_us(void)
{
    uint64_t wall_us = read_us(CLOCK_REALTIME, FROZEN_AT_WALL_MS);

    if (__builtin_expect(shared_wall_ms != NULL, 0))
        wall_us += (uint64_t)__atomic_load_n(shared_wall_ms, __ATOMIC_RELAXED) * 1000;
    return wall_us;
}

uint64_t
cn_wall_ms(void)
{
    return cn_wall_us() / 1000;
}

uint64_t
cn_boot_ms(void)
{
    return read_us(CLOCK_BOOTTIME, FROZEN_AT_MS) / 1000;
}

bool
cn_clock_is_test(void)
{
    return shared_ahead_ms || __atomic_load_n(&frozen, __ATOMIC_RELAXED) ||
           __atomic_load_n(&own_ahead_ms, __ATOMIC_RELAXED);
}

void
cn_clock_freeze(void)
{
    __atomic_store_n(&own_ahead_ms, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&frozen, 1, __ATOMIC_RELAXED);
}

void
cn_clock_advance(uint64_t ms)
{
    __atomic_fetch_add(&own_ahead_ms, ms, __ATOMIC_RELAXED);
}

void
cn_wall_format(uint64_t wall_ms, char out[25])
{
    const uint64_t last_ms = UINT64_C(253402300799999); /* end of the year 9999 */
    uint64_t ms = wall_ms < last_ms ? wall_ms : last_ms;
    time_t seconds = (time_t)(ms / 1000);
    char text[80]; /* as much as a struct tm could need in the compiler's view */
    struct tm tm;

    gmtime_r(&seconds, &tm);
    snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%03uZ", tm.tm_year + 1900,
             tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (unsigned)(ms % 1000));
    memcpy(out, text, 24);
    out[24] = '\0';
}
