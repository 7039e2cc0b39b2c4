/* ctl/top.c - the live view: once a second a frame of models, workers and problems. It goes to a
 * terminal, or as text or JSON to a file or a pipe.
 *
 * On a terminal it uses the alternate screen, so that what was there before comes back at the end,
 * and cuts the frame to the screen's height. Only plain ANSI sequences are used, without a library
 * for terminals. Without a terminal, frames simply follow each other. It ends at q, SIGINT or
 * SIGTERM, or when nobody reads its output any more; the terminal's settings are put back in each
 * case.
 *
 * Rates are differences between two readings, so the first frame comes after a second. A server
 * that does not answer is shown as such, and may come back. */
#include "ctl/top.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "ctl/columns.h"
#include "ctl/show.h"

#define INTERVAL_MS 1000

/* Switches to another screen without a cursor, on which long lines are cut; and back. */
#define SCREEN_BEGIN "\x1b[?1049h\x1b[?25l\x1b[?7l"
#define SCREEN_END "\x1b[?7h\x1b[?25h\x1b[?1049l"
#define SCREEN_HOME "\x1b[H\x1b[J"

static volatile sig_atomic_t ended;

static void
on_end(int number)
{
    (void)number;
    ended = 1;
}

struct top {
    const struct cn_ctl_top_source *source;
    bool json, screen, keys;
    struct termios before;
    void *old; /* the last frame; NULL if there was no answer */
};

static void
terminal_begin(struct top *top)
{
    struct sigaction action = {.sa_handler = on_end};
    struct termios raw;

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    top->screen = !top->json && isatty(STDOUT_FILENO);
    top->keys = top->screen && isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &top->before) == 0;
    if (top->keys) {
        raw = top->before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    if (top->screen)
        fputs(SCREEN_BEGIN, stdout);
}

static void
terminal_end(struct top *top)
{
    if (top->screen)
        fputs(SCREEN_END, stdout);
    fflush(stdout);
    if (top->keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &top->before);
}

/* Waits until the next frame is due, or a key was pressed. */
static void
pause_until(struct top *top, uint64_t deadline_ms)
{
    struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
    uint64_t now_ms;
    char key;

    while (!ended && (now_ms = cn_now_ms()) < deadline_ms) {
        if (poll(&keys, top->keys ? 1 : 0, (int)(deadline_ms - now_ms)) <= 0)
            continue;
        if (read(STDIN_FILENO, &key, 1) != 1)
            top->keys = false; /* the terminal is gone */
        else if (key == 'q' || key == 'Q')
            ended = 1;
    }
}

/* Writes the frame, or as many lines of it as the screen has. */
static void
put_frame(const struct top *top, const struct cn_buf *frame)
{
    struct winsize size = {0};
    size_t len = 0, lines = 0;

    if (top->screen) {
        fputs(SCREEN_HOME, stdout);
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row == 0)
            size.ws_row = 24;
        while (len < frame->len && lines + 1 < size.ws_row)
            lines += frame->data[len++] == '\n';
    } else {
        len = frame->len;
    }
    fwrite(frame->data, 1, len, stdout);
    if (top->screen)
        fputs("q quits", stdout);
    fflush(stdout);
    if (ferror(stdout))
        ended = 1; /* nobody reads the output any more */
}

/* Shows what happened between the last frame and `now`. If `now` is NULL, `err` says why. */
static void
show(struct top *top, const void *now, const struct cn_error *err)
{
    struct cn_buf text;

    cn_buf_init(&text, 0);
    if (now)
        top->source->show(top->source->ctx, top->old ? top->old : now, now, top->json, &text);
    else if (top->json)
        cn_ctl_json_error(err->message, true, &text);
    else
        cn_ctl_put_plain(&text, err->message);
    put_frame(top, &text);
    cn_buf_fini(&text);
}

int
cn_ctl_top_run(const struct cn_ctl_top_source *source, bool once, bool json, struct cn_error *err)
{
    struct top top = {.source = source, .json = json};
    void *now;
    int rc;

    rc = source->read(source->ctx, &top.old, err);
    if (rc)
        return rc;
    if (!once)
        terminal_begin(&top);
    for (;;) {
        pause_until(&top, cn_now_ms() + INTERVAL_MS);
        if (ended)
            break;
        rc = source->read(source->ctx, &now, err);
        if (rc && once)
            break;
        show(&top, now, err);
        source->drop(top.old);
        top.old = now; /* NULL if there was no answer; there may be one next time */
        if (once)
            break;
    }
    if (!once)
        terminal_end(&top);
    source->drop(top.old);
    return once ? rc : 0;
}

/* --- one server */

static void
view_drop(void *frame)
{
    struct cn_ctl_view *view = frame;

    if (!view)
        return;
    cn_ctl_view_fini(view);
    cn_free(view);
}

static int
view_read(void *ctx, void **out, struct cn_error *err)
{
    struct cn_ctl_view *view = cn_alloc(sizeof *view);
    int rc;

    cn_ctl_view_init(view);
    rc = cn_ctl_read(ctx, view, err);
    if (rc) {
        view_drop(view);
        view = NULL;
    }
    *out = view;
    return rc;
}

static void
view_show(void *ctx, const void *before, const void *now, bool json, struct cn_buf *text)
{
    const struct cn_ctl_server *server = ctx;
    struct cn_ctl_diagnosis *diagnosis;

    if (json) {
        cn_ctl_json_top(before, now, server->management, text);
        return;
    }
    diagnosis = cn_alloc(sizeof *diagnosis);
    cn_ctl_diagnosis_init(diagnosis);
    cn_ctl_diagnose(diagnosis, now, server->management, cn_wall_ms());
    cn_ctl_show_top(before, now, diagnosis, server->management, text);
    cn_ctl_diagnosis_fini(diagnosis);
    cn_free(diagnosis);
}

int
cn_ctl_top(const struct cn_ctl_server *server, bool once, bool json, struct cn_error *err)
{
    struct cn_ctl_server own = *server;
    const struct cn_ctl_top_source source = {
        .ctx = &own, .read = view_read, .drop = view_drop, .show = view_show};

    return cn_ctl_top_run(&source, once, json, err);
}
