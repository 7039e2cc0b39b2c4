/* worker/process/kill_point.c - lets a test kill a worker at an exact place. The worker's one
 * thread.
 *
 * Tests of recovery must not depend on luck: a kill between the handler's end and the commit has
 * another result than one after the commit. The environment variable
 * CONTINUO_TEST_KILL_AT=POINT[:N] makes the worker die by SIGKILL when it passes the point for the
 * Nth time. SIGKILL is what the kernel's memory killer sends, and no code runs after it.
 *
 * With CONTINUO_TEST_KILL_ONCE=FILE only one of all workers dies: the one that can create the file.
 * Without it, the worker that is started in the place of the dead one would die at the same point,
 * and so on.
 *
 * In a normal run nothing is armed, and a point costs one comparison (cn_kill_pass in the header).
 */
#include "worker/process/kill_point.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/errors/panic.h"

enum cn_kill_point cn_kill_armed;

static unsigned long passings_left;
static const char *once_file;

static const char *const words[] = {
    [CN_KILL_NONE] = "none",
    [CN_KILL_LOADED] = "loaded",
    [CN_KILL_BATCH_READ] = "batch_read",
    [CN_KILL_HANDLER_DONE] = "handler_done",
    [CN_KILL_BEFORE_COMMIT] = "before_commit",
    [CN_KILL_APPENDED] = "appended",
    [CN_KILL_AFTER_COMMIT] = "after_commit",
    [CN_KILL_ANSWERS_HALF_WRITTEN] = "answers_half_written",
    [CN_KILL_ANSWERS_WRITTEN] = "answers_written",
    [CN_KILL_JOURNAL_SWITCHED] = "journal_switched",
    [CN_KILL_DRAINING] = "draining",
    [CN_KILL_DRAINED] = "drained",
};

void
cn_kill_arm(void)
{
    const char *text = getenv("CONTINUO_TEST_KILL_AT");
    size_t word_len;
    char *rest;

    cn_kill_armed = CN_KILL_NONE;
    if (!text || !*text)
        return;
    word_len = strcspn(text, ":");
    passings_left = 1;
    once_file = getenv("CONTINUO_TEST_KILL_ONCE");
    if (text[word_len] == ':') {
        passings_left = strtoul(text + word_len + 1, &rest, 10);
        if (*rest)
            passings_left = 0;
    }
    for (unsigned i = 1; i < sizeof(words) / sizeof(*words); i++) {
        if (strlen(words[i]) == word_len && memcmp(words[i], text, word_len) == 0)
            cn_kill_armed = (enum cn_kill_point)i;
    }
    if (cn_kill_armed == CN_KILL_NONE || passings_left == 0)
        cn_panic(__FILE__, __LINE__, "CONTINUO_TEST_KILL_AT=%s: want point[:n]", text);
}

bool
cn_kill_due(void)
{
    int fd;

    if (--passings_left != 0)
        return false;
    if (once_file) {
        fd = open(once_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) { /* another worker died for it */
            cn_kill_armed = CN_KILL_NONE;
            return false;
        }
        close(fd);
    }
    return true;
}

void
cn_kill_now(void)
{
    raise(SIGKILL);
}
