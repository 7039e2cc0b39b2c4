/* tests/support/fake_worker.c - a worker without handlers, for tests of management.
 *
 * Reads and writes frames on descriptor 3 and does what the word in the model's handler file says:
 *   echo            loads, and answers each row with its body
 *   device TEXT     like echo, and says that it runs on this device
 *   refuse          sends LOADED with an error
 *   refuse-while F  like refuse while file F exists, and then like echo
 *   die-on-load     prints two lines and exits with status 3
 *   hang-on-load    never sends LOADED
 *   garbage         after LOADED, sends bytes that are not a frame
 * Some bodies are orders: "crash" (SIGABRT), "hang", "pid", "fds", "cwd", "env NAME", "print TEXT".
 * With --mend-store DIR it fails if DIR has a file "damaged", is ended from outside if DIR has a
 * file "ended", and finds damaged records if DIR has a file "records".
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/frame.h"

static char script[256];
static struct cn_buf in, out;

static void
send_all(void)
{
    size_t at = 0;

    while (at < out.len) {
        ssize_t n = send(CN_WORKER_FD, out.data + at, out.len - at, MSG_NOSIGNAL);

        if (n < 0)
            _exit(0);
        at += (size_t)n;
    }
    cn_buf_reset(&out);
}

static bool
script_is(const char *word)
{
    return strncmp(script, word, strlen(word)) == 0;
}

static void
list_fds(char *text, size_t bytes)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    size_t used = 0;

    text[0] = '\0';
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(dir))
            used += (size_t)snprintf(text + used, bytes - used, "%s ", entry->d_name);
    closedir(dir);
}

/* Returns the text of the answer. It is in `text` if it is not the body itself. */
static struct cn_str
obey(struct cn_str body, char *text, size_t bytes)
{
    char order[256];

    snprintf(order, sizeof order, "%.*s", CN_STR_ARG(body));
    if (strcmp(order, "crash") == 0) {
        fprintf(stderr, "about to crash\n");
        raise(SIGABRT); /* the sanitizers do not catch this one */
    } else if (strcmp(order, "hang") == 0) {
        for (;;)
            pause();
    } else if (strcmp(order, "pid") == 0) {
        snprintf(text, bytes, "%d", (int)getpid());
    } else if (strcmp(order, "fds") == 0) {
        list_fds(text, bytes);
    } else if (strcmp(order, "cwd") == 0) {
        return cn_str_from(getcwd(text, bytes));
    } else if (strncmp(order, "env ", 4) == 0) {
        snprintf(text, bytes, "%s", getenv(order + 4) ? getenv(order + 4) : "(none)");
    } else if (strncmp(order, "print ", 6) == 0) {
        printf("%s\n", order + 6);
        fflush(stdout);
        return body;
    } else {
        return body;
    }
    return cn_str_from(text);
}

static void
on_load(const struct cn_frame *frame, struct cn_arena *arena)
{
    struct cn_load load;
    struct cn_loaded loaded = {.message = CN_STR("fake 1.0"),
                               .walls = CN_STR("not_dumpable no_new_privs"),
                               .lacking = CN_STR("landlock: a fake has none")};
    FILE *file;
    char path[1024];

    if (cn_frame_get_load(frame, arena, &load, NULL))
        _exit(70);
    snprintf(path, sizeof path, "%s/%s", load.model_dir, load.handler);
    file = fopen(path, "r");
    if (!file || !fgets(script, sizeof script, file))
        _exit(71);
    fclose(file);
    script[strcspn(script, "\n")] = '\0';
    if (script_is("hang-on-load"))
        return;
    if (script_is("die-on-load")) {
        fprintf(stderr, "one line\nno such tensor\n");
        _exit(3);
    }
    if (script_is("refuse-while ") ? access(script + 13, F_OK) == 0 : script_is("refuse")) {
        loaded.error_code = CN_E_LOAD_FAILED;
        loaded.message = CN_STR("handler.lua:3: nothing to see");
    }
    if (script_is("device "))
        loaded.device = cn_str_from(script + 7);
    cn_frame_put_loaded(&out, &loaded);
    cn_frame_put_stats(&out, &(struct cn_worker_stats){.rss_bytes = 1234567});
    if (script_is("garbage"))
        cn_buf_append(&out, "these bytes are garbage", 23);
    send_all();
}

static void
on_batch(const struct cn_frame *frame, struct cn_arena *arena)
{
    struct cn_row *rows;
    char text[512];
    uint32_t i;

    if (cn_frame_get_batch(frame, arena, &rows, NULL))
        _exit(72);
    for (i = 0; i < frame->count; i++) {
        struct cn_str body = rows[i].n_parts ? rows[i].parts[0].data : CN_STR("");
        struct cn_answer answer = {.job_id = rows[i].job_id,
                                   .flags = CN_ANSWER_FINAL,
                                   .generation = rows[i].generation ? rows[i].generation : 1,
                                   .body = obey(body, text, sizeof text)};

        cn_frame_put_answer(&out, &answer);
        send_all();
    }
}

static void
on_frame(const struct cn_frame *frame)
{
    struct cn_arena arena;

    cn_arena_init(&arena);
    if (frame->type == CN_FRAME_LOAD) {
        on_load(frame, &arena);
    } else if (frame->type == CN_FRAME_BATCH) {
        on_batch(frame, &arena);
    } else if (frame->type == CN_FRAME_CLOSE) {
        cn_frame_put_closed(&out, &(struct cn_closed){.count = frame->count, .done = frame->count});
        send_all();
    } else if (frame->type == CN_FRAME_STOP) {
        exit(0);
    }
    cn_arena_fini(&arena);
}

int
main(int argc, char **argv)
{
    struct cn_frame frame;
    char path[1024];
    long size;
    ssize_t n;

    if (argc == 3 && strcmp(argv[1], "--mend-store") == 0) {
        snprintf(path, sizeof path, "%s/ended", argv[2]);
        if (access(path, F_OK) == 0)
            raise(SIGTERM);
        snprintf(path, sizeof path, "%s/records", argv[2]);
        if (access(path, F_OK) == 0)
            return CN_CHECK_DAMAGED;
        snprintf(path, sizeof path, "%s/damaged", argv[2]);
        return access(path, F_OK) == 0;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    cn_buf_init(&in, 0);
    cn_buf_init(&out, 0);
    for (;;) {
        char *to = cn_buf_reserve(&in, 65536);

        n = to ? read(CN_WORKER_FD, to, 65536) : -1;
        if (n <= 0)
            return 0;
        in.len += (size_t)n;
        while ((size = cn_frame_next(in.data, in.len, 1u << 30, &frame, NULL)) > 0) {
            on_frame(&frame);
            cn_buf_consume(&in, (size_t)size);
        }
        if (size < 0)
            return 73;
    }
}
