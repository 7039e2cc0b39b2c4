/* core/time/clock.h - time, which a test can move.
 *
 * With the environment variable CONTINUO_TEST_CLOCK=FILE, both clocks run ahead by the milliseconds
 * that the file's first 8 bytes (little-endian int64) hold, and the wall clock besides by those of
 * the next 8, where there are any; the file is mapped, so server and workers see a change at once.
 * In unit tests cn_clock_freeze() and cn_clock_advance() do the same in the process.
 */
#ifndef CN_CORE_TIME_CLOCK_H
#define CN_CORE_TIME_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define CN_NEVER UINT64_MAX

/* Milliseconds of a clock that never goes back; any thread. Deadlines are absolute values of it. */
uint64_t cn_now_ms(void);
/* Microseconds of the same clock, for measuring. */
uint64_t cn_now_us(void);
/* Microseconds of CPU that this process has used. A system call. */
uint64_t cn_cpu_us(void);
/* Milliseconds since 1970 UTC: what is written to disk or shown to people. */
uint64_t cn_wall_ms(void);
/* Milliseconds since the machine was started, time that it slept included: never set by anybody. */
uint64_t cn_boot_ms(void);
/* Is time under a test's control? Loops then look at the clock at least each 5 ms. */
bool cn_clock_is_test(void);

/* Unit tests: stops both clocks (at 1,000,000 ms and at wall 1,700,000,000,000), moves them. */
void cn_clock_freeze(void);
void cn_clock_advance(uint64_t ms);

/* "2026-11-21T04:36:32.123Z" into `out` (25 bytes with the NUL). */
void cn_wall_format(uint64_t wall_ms, char out[25]);

#endif
