/* management/state/clock_watch.h - did the machine's wall clock jump?
 *
 * Sequences expire by the wall clock, because their times outlive the server. A clock that jumps
 * ahead (a wrong one at boot, or a time server's correction) would expire all of them at once.
 * Within one boot of the machine a jump can be proved: the wall clock ran further than
 * CLOCK_BOOTTIME. Across boots it is not known how long the machine was off, so only a very long
 * time is taken for a jump. After a jump, idle clocks start anew. The file `clock` in the state
 * folder holds what was seen last. Loop 0; the floor can be read on any thread.
 */
#ifndef CN_MANAGEMENT_STATE_CLOCK_WATCH_H
#define CN_MANAGEMENT_STATE_CLOCK_WATCH_H

#include <stdint.h>

#include "config/server/server_config.h"
#include "core/loop/loop.h"

/* At the start: compares the clock with what the last server left. `path`: the state folder. */
void cn_clock_watch_begin(const char *path, const struct cn_server_config *config);
/* Call it every few seconds: it notices a jump, and now and then writes down the time. Jumps are
 * counted in the metrics of `loop`. */
void cn_clock_watch_look(struct cn_loop *loop);
/* At the end: writes the time down and frees the watch. */
void cn_clock_watch_end(void);
/* Steps before this wall time count as if they had been made at it; 0: there was no jump. */
uint64_t cn_clock_watch_floor_ms(void);

#endif
