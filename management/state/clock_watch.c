/* management/state/clock_watch.c - notices that the wall clock has jumped. There is one watch for
 * the process, as there is one clock. Loop 0, except that any thread may ask for the floor.
 *
 * Within a boot of the machine a jump is seen by the offset between the wall clock and
 * CLOCK_BOOTTIME, which also counts while the machine sleeps: the offset only changes if somebody
 * sets the wall clock. Slow corrections change it a little each time and are not jumps, so the
 * offset is remembered anew at each look.
 *
 * After a jump ahead the floor is the time of the jump: steps before it count as if they had been
 * made at the floor, so that idle clocks start anew instead of ending all at once. After a jump
 * back the floor is never later than the new time. The file `clock` carries the offset and the
 * floor over a restart.
 */
#include "management/state/clock_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "management/state/state_dir_priv.h"
#include "metrics/counters/metrics.h"

#define WRITE_EVERY_MS 600000
#define FILE_BYTES 160 /* always the same length, and written in place: see state_dir.c */

static struct {
    char *file, boot_id[64];
    uint64_t limit_ms, limit_off_ms;
    _Atomic int64_t offset_ms; /* wall time minus boot time, at the last look */
    uint64_t written_ms;
    uint64_t jumps, counted;
} watch;
static _Atomic uint64_t floor_ms;

uint64_t
cn_clock_watch_floor_ms(void)
{
    const uint64_t wall_ms = cn_wall_ms();
    const int64_t by_ms = (int64_t)(wall_ms - cn_boot_ms()) - watch.offset_ms;

    /* A worker may be started between the jump and the next look. */
    if (watch.limit_ms && by_ms > (int64_t)watch.limit_ms)
        return wall_ms;
    return atomic_load_explicit(&floor_ms, memory_order_relaxed);
}

static void
read_boot_id(void)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, watch.boot_id, sizeof watch.boot_id - 1);

    if (fd >= 0)
        close(fd);
    watch.boot_id[n > 0 ? n : 0] = '\0';
    watch.boot_id[strcspn(watch.boot_id, "\n ")] = '\0';
    if (!watch.boot_id[0])
        strcpy(watch.boot_id, "-");
}

static void
write_down(void)
{
    char text[FILE_BYTES];
    int fd = open(watch.file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    memset(text, '\n', sizeof text);
    snprintf(text, sizeof text - 1, "%s %" PRIu64 " %" PRIu64 " %" PRIu64, watch.boot_id,
             cn_wall_ms(), cn_boot_ms(), atomic_load(&floor_ms));
    text[strlen(text)] = '\n';
    if (fd < 0 || pwrite(fd, text, sizeof text, 0) != (ssize_t)sizeof text)
        cn_log(CN_LOG_WARN, "event=clock_not_written file=%s reason=\"%s\"", watch.file,
               strerror(errno));
    if (fd >= 0)
        close(fd);
    watch.written_ms = cn_now_ms();
}

static void
jumped(int64_t by_ms, const char *how)
{
    const uint64_t wall_ms = cn_wall_ms();

    watch.jumps++;
    /* A floor that lies in the future now would keep all sequences, also new ones, until then. */
    if (by_ms > 0 || atomic_load(&floor_ms) > wall_ms)
        atomic_store(&floor_ms, wall_ms);
    cn_log(
        CN_LOG_ERROR, "event=clock_jumped by_ms=%" PRId64 " how=\"%s\" note=\"%s\"", by_ms, how,
        by_ms > 0
            ? "the idle clocks of all sequences were restarted"
            : "sequences do not expire until the clock reaches the time of their last step again");
}

/* Compares the clocks with what the last server wrote down. */
static void
compare(void)
{
    char text[FILE_BYTES + 1], boot_id[64];
    uint64_t wall, boot, stored_floor;
    int fd = open(watch.file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, FILE_BYTES);
    int64_t by_ms;

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    if (sscanf(text, "%63s %" SCNu64 " %" SCNu64 " %" SCNu64, boot_id, &wall, &boot,
               &stored_floor) != 4)
        return;
    atomic_store(&floor_ms, stored_floor);
    if (strcmp(boot_id, watch.boot_id) == 0) {
        by_ms = watch.offset_ms - (int64_t)(wall - boot);
        if (watch.limit_ms && (by_ms > (int64_t)watch.limit_ms || -by_ms > (int64_t)watch.limit_ms))
            jumped(by_ms, "while no server ran");
        return;
    }
    by_ms = (int64_t)(cn_wall_ms() - wall);
    if (watch.limit_off_ms && by_ms > (int64_t)watch.limit_off_ms)
        jumped(by_ms, "since the machine was started");
    else if (watch.limit_ms && -by_ms > (int64_t)watch.limit_ms)
        jumped(by_ms, "since the machine was started");
}

void
cn_clock_watch_begin(const char *path, const struct cn_server_config *config)
{
    cn_free(watch.file);
    watch.jumps = watch.counted = 0;
    atomic_store(&floor_ms, 0);
    watch.file = cn_state_path(path, "clock");
    watch.limit_ms = config->clock_jump_ms;
    watch.limit_off_ms = config->clock_jump_off_ms;
    watch.offset_ms = (int64_t)(cn_wall_ms() - cn_boot_ms());
    read_boot_id();
    compare();
    write_down();
}

void
cn_clock_watch_look(struct cn_loop *loop)
{
    int64_t offset_ms = (int64_t)(cn_wall_ms() - cn_boot_ms()), by_ms = offset_ms - watch.offset_ms;

    if (!watch.file)
        return;
    if (watch.limit_ms && (by_ms > (int64_t)watch.limit_ms || -by_ms > (int64_t)watch.limit_ms)) {
        jumped(by_ms, "while the server runs");
        write_down();
    } else if (cn_now_ms() - watch.written_ms >= WRITE_EVERY_MS) {
        write_down();
    }
    watch.offset_ms = offset_ms; /* a slow change does not count as a jump */
    if (watch.jumps > watch.counted)
        cn_metrics_add(cn_loop_metrics(loop), CN_M_CLOCK_JUMPS, watch.jumps - watch.counted);
    watch.counted = watch.jumps;
}

void
cn_clock_watch_end(void)
{
    if (watch.file)
        write_down();
    cn_free(watch.file);
    watch.file = NULL;
}
