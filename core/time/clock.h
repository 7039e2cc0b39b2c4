/* core/time/clock.h - the clocks, which a test can move.
 *
 * With the environment variable CONTINUO_TEST_CLOCK=FILE, both clocks run ahead by the milliseconds
 * in the file's first 8 bytes (a little-endian int64), and the wall clock also by those in the next
 * 8 bytes, if the file has them. The file is mapped, so the server and its workers see a change at
 * once. In unit tests cn_clock_freeze() and cn_clock_advance() do the same within the process. */
#ifndef CN_CORE_TIME_CLOCK_H
#define CN_CORE_TIME_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define CN_NEVER UINT64_MAX

/* Milliseconds of a clock that never goes back. Deadlines are absolute values of it. Any thread. */
uint64_t cn_now_ms(void);
/* Microseconds of the same clock, for measuring. */
uint64_t cn_now_us(void);
/* Microseconds of CPU time that this process has used. It is a system call. */
uint64_t cn_cpu_us(void);
/* Milliseconds since 1970 UTC, for what is written to disk or shown to people. */
uint64_t cn_wall_ms(void);
/* Microseconds since 1970 UTC. */
uint64_t cn_wall_us(void);
/* Milliseconds since the machine was started, with the time that it slept. Nobody can set this
 * clock. */
uint64_t cn_boot_ms(void);
/* Does a test control the time? Loops then look at the clock at least every 5 ms. */
bool cn_clock_is_test(void);

/* For unit tests: stops both clocks, at 1,000,000 ms and at wall time 1,700,000,000,000 ms; and
 * moves them ahead. */
void cn_clock_freeze(void);
void cn_clock_advance(uint64_t ms);

/* Writes "2026-11-21T04:36:32.123Z" to `out`, 25 bytes with the NUL. */
void cn_wall_format(uint64_t wall_ms, char out[25]);

#endif
