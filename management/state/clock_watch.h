/* management/state/clock_watch.h - did the machine's wall clock jump?
 *
 * Sequences expire by the wall clock, since their times outlive the server. A clock that jumps
 * ahead (a wrong one at boot, a time server's correction) would expire all of them at once. Within
 * a boot of the machine a jump is proven: the wall clock ran further than CLOCK_BOOTTIME. Across
 * boots nobody knows how long the machine was off, so only a very long time is taken for a jump.
 * After one, idle clocks start anew. The file `clock` in the state folder says what was seen last.
 * Loop 0; the floor: any thread.
 */
#ifndef CN_MANAGEMENT_STATE_CLOCK_WATCH_H
#define CN_MANAGEMENT_STATE_CLOCK_WATCH_H

#include <stdint.h>

#include "config/server/server_config.h"
#include "core/loop/loop.h"

/* At the start: looks at the clock as the last server left it. `path`: the state folder. */
void cn_clock_watch_begin(const char *path, const struct cn_server_config *config);
/* Every few seconds: sees a jump, and now and then writes down what time it is. Counts jumps at
 * `loop`. */
void cn_clock_watch_look(struct cn_loop *loop);
/* At the end. */
void cn_clock_watch_end(void);
/* Steps before this wall time count as if they had been made then; 0: there was no jump. */
uint64_t cn_clock_watch_floor_ms(void);

#endif
