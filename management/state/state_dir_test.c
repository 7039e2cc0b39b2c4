/* management/state/state_dir_test.c - tests state_dir.c and state_store.c. */
#include "management/state/state_dir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/test_support.h"

static char dir[TEST_DIR_MAX];
static char worker[600]; /* the fake one, beside this test */

static int
set_up(void **state)
{
    (void)state;
    test_program_path("fake_worker", worker, sizeof(worker));
    test_dir_make(dir);
    strcat(dir, "/state");
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    *strrchr(dir, '/') = '\0';
    return test_dir_remove(dir);
}

static bool
exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static struct cn_state_dir *
open_dir(void)
{
    struct cn_state_dir *opened = NULL;
    struct cn_error err = {0};

    if (cn_state_dir_open(dir, 0, &opened, &err))
        fail_msg("%s", err.message);
    return opened;
}

/* Sequences may hold private data, so other users must not be able to read them. */
static void
the_folder_is_made_private(void **state)
{
    struct cn_state_dir *opened = open_dir();
    struct stat st;

    (void)state;
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    cn_state_dir_close(opened, true);
}

/* Two servers that write one store would break it, so the second one is refused, with a message
 * that says who holds the lock. */
static void
a_second_server_is_refused_and_told_the_pid(void **state)
{
    struct cn_state_dir *first = open_dir(), *second = NULL;
    struct cn_error err;
    char pid[32];

    (void)state;
    assert_int_equal(cn_state_dir_open(dir, 30, &second, &err), CN_E_CONFLICT);
    snprintf(pid, sizeof pid, "in use by pid %d;", (int)getpid());
    assert_non_null(strstr(err.message, dir));
    assert_non_null(strstr(err.message, pid));
    cn_state_dir_close(first, true);
    cn_state_dir_close(open_dir(), true);
}

/* A worker of a dead server may still write, so the lock is held as long as the worker lives. */
static void
the_lock_lives_as_long_as_an_inheritor(void **state)
{
    struct cn_state_dir *first = open_dir(), *second = NULL;
    struct cn_error err;
    int pipe_fds[2];
    char byte;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(pipe_fds), 0);
    pid = fork();
    if (pid == 0) { /* holds a copy of the descriptor until the pipe closes */
        close(pipe_fds[1]);
        _exit(read(pipe_fds[0], &byte, 1) != 0);
    }
    cn_state_dir_close(first, false);
    assert_int_equal(cn_state_dir_open(dir, 30, &second, &err), CN_E_CONFLICT);
    close(pipe_fds[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(pipe_fds[0]);
    cn_state_dir_close(open_dir(), true);
}

/* Holds the lock with the descriptor that it inherits, and ends when the log says that somebody
 * waits for it. */
static pid_t
start_orphan(const int log[2])
{
    pid_t pid = fork();
    char byte;

    assert_true(pid >= 0);
    if (pid == 0) {
        close(log[1]);
        _exit(read(log[0], &byte, 1) != 1);
    }
    return pid;
}

/* On a machine under load a worker may end long after its server. The new server waits for it
 * longer than for a server that lives. */
static void
a_server_waits_longer_for_the_workers_of_one_that_has_ended(void **state)
{
    struct cn_state_dir *first = open_dir(), *second = NULL;
    struct cn_error err;
    char path[200];
    int log[2], fd;
    pid_t orphan, ended = fork();

    (void)state;
    if (ended == 0)
        _exit(0);
    assert_int_equal(waitpid(ended, NULL, 0), ended);
    snprintf(path, sizeof path, "%s/lock", dir);
    fd = open(path, O_WRONLY | O_TRUNC);
    assert_true(fd >= 0 && dprintf(fd, "%d\n", (int)ended) > 0);
    close(fd);
    assert_int_equal(pipe(log), 0);
    orphan = start_orphan(log);
    cn_state_dir_close(first, false);
    cn_log_set_copy(log[1]);
    assert_int_equal(cn_state_dir_open(dir, 1000, &second, &err), 0);
    cn_log_set_copy(-1);
    assert_int_equal(waitpid(orphan, NULL, 0), orphan);
    close(log[0]);
    close(log[1]);
    cn_state_dir_close(second, true);
}

static ino_t
inode_of(const char *name)
{
    char path[200];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(stat(path, &st), 0);
    return st.st_ino;
}

/* A disk without a free byte has no room for new files and folders, so everything is written in
 * place. */
static void
nothing_is_made_anew_at_the_second_start(void **state)
{
    static const char *const names[] = {"FORMAT", "lock", "boot", "models", "unpacked"};
    struct cn_state_dir *opened = open_dir();
    char *place = cn_state_dir_unpack_place(opened);
    ino_t before[5];
    off_t lock_bytes;
    char path[200], text[100];
    struct stat st;
    FILE *file;
    size_t i;

    (void)state;
    assert_int_equal(mkdir(place, 0700), 0);
    for (i = 0; i < 5; i++)
        before[i] = inode_of(names[i]);
    snprintf(path, sizeof path, "%s/lock", dir);
    assert_int_equal(stat(path, &st), 0);
    lock_bytes = st.st_size;
    cn_state_dir_close(opened, true);
    cn_state_dir_close(open_dir(), false);
    for (i = 0; i < 5; i++)
        assert_int_equal(inode_of(names[i]), before[i]);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, lock_bytes);
    assert_false(exists(place));
    snprintf(path, sizeof path, "%s/boot", dir);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_non_null(strstr(text, " running\n"));
    cn_free(place);
}

/* A first start without room, or a power cut during it, may leave small files empty. They count as
 * missing. */
static void
empty_files_are_as_none(void **state)
{
    char path[200];

    (void)state;
    cn_state_dir_close(open_dir(), true);
    test_dir_write(dir, "FORMAT", "");
    test_dir_write(dir, "boot", "");
    cn_state_dir_close(open_dir(), true);
    snprintf(path, sizeof path, "%s/FORMAT", dir);
    assert_true(exists(path));
}

/* An old server must not change a folder that it does not understand. */
static void
a_newer_format_is_refused(void **state)
{
    struct cn_state_dir *opened = NULL;
    struct cn_error err;

    (void)state;
    cn_state_dir_close(open_dir(), true);
    test_dir_write(dir, "FORMAT", "99\n");
    assert_int_equal(cn_state_dir_open(dir, 0, &opened, &err), CN_E_CONFIG);
    assert_non_null(strstr(err.message, "format 99"));
    test_dir_write(dir, "FORMAT", "hello\n");
    assert_int_equal(cn_state_dir_open(dir, 0, &opened, &err), CN_E_CONFIG);
    test_dir_write(dir, "FORMAT", "1\n");
    cn_state_dir_close(open_dir(), true);
}

/* If the folder cannot be made, the message names it. */
static void
an_impossible_folder_is_named(void **state)
{
    struct cn_state_dir *opened = NULL;
    struct cn_error err;

    (void)state;
    assert_int_equal(cn_state_dir_open("/proc/nothing/here", 0, &opened, &err), CN_E_CONFIG);
    assert_non_null(strstr(err.message, "/proc/nothing/here"));
}

/* No name can lead out of the folder or be confused with another one. */
static void
names_become_safe_file_names(void **state)
{
    struct cn_buf buf;

    (void)state;
    cn_buf_init(&buf, 0);
    cn_state_dir_encode("..", &buf);
    cn_buf_puts(&buf, " ");
    cn_state_dir_encode("a/b%c", &buf);
    cn_buf_puts(&buf, " ");
    cn_state_dir_encode("1.0", &buf);
    cn_buf_append(&buf, "", 1);
    assert_string_equal(buf.data, "%2E. a%2Fb%25c 1.0");
    cn_buf_fini(&buf);
}

/* A name may have 128 bytes, which may take 384 in a file name. Long names are cut to 255. */
static void
long_names_fit_and_stay_apart(void **state)
{
    struct cn_state_dir *opened = open_dir();
    char name[129], other[129], *stores[2];
    struct cn_error err;

    (void)state;
    memset(name, 0xe4, 128);
    name[128] = '\0';
    strcpy(other, name);
    other[127] = '!';
    stores[0] = cn_state_dir_store(opened, name, "1.0");
    stores[1] = cn_state_dir_store(opened, other, "1.0");
    assert_string_not_equal(stores[0], stores[1]);
    for (int i = 0; i < 2; i++) {
        if (cn_state_dir_prepare_store(stores[i], worker, false, &err))
            fail_msg("%s", err.message);
        assert_true(exists(stores[i]));
        cn_free(stores[i]);
    }
    name[85] = '\0'; /* 255 bytes in the file name, so it is not cut */
    stores[0] = cn_state_dir_store(opened, name, "1.0");
    assert_null(strchr(stores[0], '~'));
    assert_int_equal(cn_state_dir_prepare_store(stores[0], worker, false, &err), 0);
    cn_free(stores[0]);
    cn_state_dir_close(opened, true);
}

/* After kill -9 of the server the page cache is intact, so nothing needs a check. After a power cut
 * each store is checked before its first use, and a bad one is kept but not used. */
static void
only_a_power_cut_makes_stores_suspect(void **state)
{
    struct cn_state_dir *opened = open_dir();
    char *good = cn_state_dir_store(opened, "counter", "1.0");
    char *bad = cn_state_dir_store(opened, "counter", "2.0");
    char path[400], command[500];
    struct cn_error err;

    (void)state;
    assert_int_equal(cn_state_dir_prepare_store(good, worker, false, &err), 0);
    assert_int_equal(cn_state_dir_prepare_store(bad, worker, false, &err), 0);
    snprintf(path, sizeof path, "%s/damaged", bad);
    fclose(fopen(path, "w"));
    cn_state_dir_close(opened, false); /* killed: same boot id */
    opened = open_dir();
    assert_int_equal(cn_state_dir_prepare_store(bad, worker, false, &err), 0);
    assert_true(exists(path));
    cn_state_dir_close(opened, false);

    test_dir_write(dir, "boot", "11111111-2222-3333-4444-555555555555 running\n");
    opened = open_dir();
    snprintf(path, sizeof path, "%s/UNVERIFIED", good);
    assert_true(exists(path));
    assert_int_equal(cn_state_dir_prepare_store(good, worker, false, &err), 0);
    assert_false(exists(path));
    assert_int_equal(cn_state_dir_prepare_store(bad, worker, false, &err), 0);
    snprintf(path, sizeof path, "%s/damaged", bad);
    assert_false(exists(path));
    snprintf(command, sizeof command, "ls -d '%s'~bad-* > /dev/null", bad);
    assert_int_equal(system(command), 0);
    cn_state_dir_close(opened, true);

    test_dir_write(dir, "boot", "11111111-2222-3333-4444-555555555555 clean\n");
    opened = open_dir();
    snprintf(path, sizeof path, "%s/UNVERIFIED", good);
    assert_false(exists(path));
    cn_state_dir_remove_store(good);
    assert_false(exists(good));
    cn_state_dir_close(opened, true);
    cn_free(good);
    cn_free(bad);
}

/* A service that is stopped while a store is checked takes the check with it. That says nothing
 * about the store, so it stays, and the next start checks it. */
static void
a_check_that_is_ended_costs_no_store(void **state)
{
    struct cn_state_dir *opened = open_dir();
    char *store = cn_state_dir_store(opened, "counter", "1.0");
    char ended[400], mark[400];
    struct cn_error err;

    (void)state;
    assert_int_equal(cn_state_dir_prepare_store(store, worker, false, &err), 0);
    snprintf(ended, sizeof ended, "%s/ended", store);
    fclose(fopen(ended, "w"));
    cn_state_dir_close(opened, false);
    test_dir_write(dir, "boot", "11111111-2222-3333-4444-555555555555 running\n");
    opened = open_dir();
    assert_int_equal(cn_state_dir_prepare_store(store, worker, false, &err), CN_E_STATE_STORE);
    assert_non_null(strstr(err.message, "signal 15"));
    assert_true(exists(ended));
    unlink(ended);
    snprintf(mark, sizeof mark, "%s/UNVERIFIED", store);
    assert_true(exists(mark));
    assert_int_equal(cn_state_dir_prepare_store(store, worker, false, &err), 0);
    assert_false(exists(mark));
    cn_state_dir_close(opened, true);
    cn_free(store);
}

/* A handler may write in the folder of its store: a link there does not let the server write
 * elsewhere. */
static void
links_in_a_store_lead_nowhere(void **state)
{
    struct cn_state_dir *opened = open_dir();
    char *store = cn_state_dir_store(opened, "counter", "1.0");
    char victim[400], made[400], path[500], text[16] = "";
    struct cn_error err;
    struct stat st;
    FILE *file;

    (void)state;
    assert_int_equal(cn_state_dir_prepare_store(store, worker, false, &err), 0);
    cn_state_dir_close(opened, false);
    test_dir_write(dir, "victim", "precious");
    snprintf(victim, sizeof victim, "%s/victim", dir);
    snprintf(made, sizeof made, "%s/made", dir);
    snprintf(path, sizeof path, "%s/records", store);
    fclose(fopen(path, "w"));
    snprintf(path, sizeof path, "%s/UNVERIFIED", store);
    assert_int_equal(symlink(made, path), 0);
    snprintf(path, sizeof path, "%s/DAMAGED", store);
    assert_int_equal(symlink(victim, path), 0);
    test_dir_write(dir, "boot", "11111111-2222-3333-4444-555555555555 running\n");
    opened = open_dir();
    assert_false(exists(made));
    assert_int_equal(cn_state_dir_prepare_store(store, worker, false, &err), 0);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    snprintf(path, sizeof path, "%s/UNVERIFIED", store);
    assert_int_equal(lstat(path, &st), -1);
    file = fopen(victim, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_string_equal(text, "precious");
    cn_state_dir_close(opened, true);
    cn_free(store);
}

/* A disk without room for the file DAMAGED: an empty store would not say what is lost. */
static void
nothing_is_set_aside_without_a_report(void **state)
{
    struct cn_state_dir *opened = open_dir();
    char *store = cn_state_dir_store(opened, "counter", "1.0");
    char path[400];
    struct rlimit was, none;
    struct cn_error err;

    (void)state;
    assert_int_equal(cn_state_dir_prepare_store(store, worker, false, &err), 0);
    cn_state_dir_close(opened, false);
    test_dir_write(dir, "boot", "11111111-2222-3333-4444-555555555555 running\n");
    opened = open_dir();
    snprintf(path, sizeof path, "%s/damaged", store);
    fclose(fopen(path, "w"));
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    none = (struct rlimit){0, was.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
    assert_int_equal(cn_state_dir_prepare_store(store, worker, false, &err), CN_E_STATE_STORE);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_true(exists(path));
    assert_int_equal(cn_state_dir_prepare_store(store, worker, false, &err), 0);
    assert_false(exists(path));
    snprintf(path, sizeof path, "%s/DAMAGED", store);
    assert_true(exists(path));
    snprintf(path, sizeof path, "[ $(ls -d '%s'~bad-* | wc -l) = 1 ]", store);
    assert_int_equal(system(path), 0);
    cn_state_dir_close(opened, true);
    cn_free(store);
}

/* A store is never confused with one that was set aside, whatever its version is called, and is
 * checked like any other. A store with the longest possible name can be set aside, too. */
static void
every_version_is_checked(void **state)
{
    struct cn_state_dir *opened = open_dir();
    char longest[129], path[800], *stores[3];
    struct cn_error err;

    (void)state;
    memset(longest, 'v', 128);
    memset(longest, 0xe4, 60);
    longest[128] = '\0';
    stores[0] = cn_state_dir_store(opened, "counter", "1.bad-2");
    stores[1] = cn_state_dir_store(opened, "counter", "1~bad-2");
    stores[2] = cn_state_dir_store(opened, "counter", longest);
    for (int i = 0; i < 3; i++)
        assert_int_equal(cn_state_dir_prepare_store(stores[i], worker, false, &err), 0);
    cn_state_dir_close(opened, false);
    test_dir_write(dir, "boot", "11111111-2222-3333-4444-555555555555 running\n");
    opened = open_dir();
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/UNVERIFIED", stores[i]);
        assert_true(exists(path));
        snprintf(path, sizeof path, "%s/damaged", stores[i]);
        fclose(fopen(path, "w"));
        if (cn_state_dir_prepare_store(stores[i], worker, false, &err))
            fail_msg("%s", err.message);
        assert_false(exists(path));
        cn_free(stores[i]);
    }
    cn_state_dir_close(opened, true);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_folder_is_made_private, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_second_server_is_refused_and_told_the_pid, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_lock_lives_as_long_as_an_inheritor, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_server_waits_longer_for_the_workers_of_one_that_has_ended,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_is_made_anew_at_the_second_start, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(empty_files_are_as_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_newer_format_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_impossible_folder_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(names_become_safe_file_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(long_names_fit_and_stay_apart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_a_power_cut_makes_stores_suspect, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_check_that_is_ended_costs_no_store, set_up, tear_down),
        cmocka_unit_test_setup_teardown(links_in_a_store_lead_nowhere, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_is_set_aside_without_a_report, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_version_is_checked, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("management.state_dir", tests, NULL, NULL);
}
