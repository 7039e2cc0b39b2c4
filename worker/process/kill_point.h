/* worker/process/kill_point.h - places at which a test can make the worker die by SIGKILL.
 *
 * CONTINUO_TEST_KILL_AT=point[:n] in the environment: the n-th passing (default 1) of the named
 * point raises SIGKILL in the process itself. With CONTINUO_TEST_KILL_ONCE=FILE only the worker
 * that creates FILE dies; those that come after it live. The points, in the order of a batch:
 *   loaded                LOADED was sent
 *   batch_read            rows are chosen, nothing was looked up
 *   handler_done          the handler has run, nothing is written
 *   before_commit         all is written, the transaction is open
 *   appended              the writes are in the store's journal; LMDB does not list new keys yet
 *   after_commit          the steps are committed, no answer was sent
 *   answers_half_written  half of the bytes of the batch's answers were sent
 *   answers_written       all bytes of the answers were sent
 * These points are in the store's journal, and most commits do not reach them:
 *   journal_switched      the other file was begun
 *   draining              a slice of the older file is written to LMDB, not committed there
 *   drained               the slice is committed
 * The points are in every build, because one that is not armed costs only a comparison.
 */
#ifndef CN_WORKER_PROCESS_KILL_POINT_H
#define CN_WORKER_PROCESS_KILL_POINT_H

#include <stdbool.h>

enum cn_kill_point {
    CN_KILL_NONE,
    CN_KILL_LOADED,
    CN_KILL_BATCH_READ,
    CN_KILL_HANDLER_DONE,
    CN_KILL_BEFORE_COMMIT,
    CN_KILL_APPENDED,
    CN_KILL_AFTER_COMMIT,
    CN_KILL_ANSWERS_HALF_WRITTEN,
    CN_KILL_ANSWERS_WRITTEN,
    CN_KILL_JOURNAL_SWITCHED,
    CN_KILL_DRAINING,
    CN_KILL_DRAINED,
};

extern enum cn_kill_point cn_kill_armed;

/* Reads the environment, once, at start. An unknown word stops the process. */
void cn_kill_arm(void);
/* Counts a passing of the armed point. Returns true at the one at which to die. */
bool cn_kill_due(void);
/* Raises SIGKILL. */
void cn_kill_now(void);

static inline void
cn_kill_pass(enum cn_kill_point point)
{
    if (__builtin_expect(cn_kill_armed == point, 0) && cn_kill_due())
        cn_kill_now();
}

#endif
