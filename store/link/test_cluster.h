/* store/link/test_cluster.h - a Redis cluster of a test's own: three primaries, and a replica for
 * each if the test wants them, on free ports of the loopback. */
#ifndef CN_STORE_LINK_TEST_CLUSTER_H
#define CN_STORE_LINK_TEST_CLUSTER_H

#include "store/link/test_server.h"

#define TEST_PRIMARIES 3
#define TEST_MEMBERS 6

struct test_cluster {
    struct test_server members[TEST_MEMBERS]; /* primaries first, then a replica of each */
    char bus[TEST_MEMBERS][8];                /* their ports for each other */
    int n;
};

static inline void
test_member_begin(struct test_cluster *cluster, int i)
{
    const char *const settings[] = {"--cluster-enabled",
                                    "yes",
                                    "--cluster-port",
                                    cluster->bus[i],
                                    "--cluster-node-timeout",
                                    "1000",
                                    "--cluster-require-full-coverage",
                                    "no",
                                    "--cluster-replica-validity-factor",
                                    "0",
                                    "--repl-diskless-sync-delay",
                                    "0",
                                    "--appendonly",
                                    "yes",
                                    "--appendfsync",
                                    "no", /* with everysec it may answer before it writes */
                                    NULL};

    test_server_begin_with(&cluster->members[i], settings);
}

/* Sends a command and returns the first line of its answer. */
static inline void
test_server_ask(const struct test_server *server, const char *command, char *out, size_t max)
{
    char line[400];
    FILE *answer;

    snprintf(line, sizeof(line), "redis-cli -p %s %s 2>&1", server->port, command);
    answer = popen(line, "r");
    assert_non_null(answer);
    if (!fgets(out, (int)max, answer))
        out[0] = '\0';
    while (fgetc(answer) != EOF)
        continue;
    pclose(answer);
    out[strcspn(out, "\r\n")] = '\0';
}

/* Waits until the answer to a command has a text. */
static inline void
test_server_expect(const struct test_server *server, const char *command, const char *text)
{
    char line[500];

    snprintf(line, sizeof(line), "redis-cli -p %s %s 2>&1 | grep -q '%s'", server->port, command,
             text);
    for (int i = 0; system(line) != 0; i++) {
        if (i == 300)
            fail_msg("'%s' never has '%s'", command, text);
        usleep(100000);
    }
}

static inline void
test_cluster_start(struct test_cluster *cluster, bool replicas)
{
    static const char *const ranges[] = {"0 5460", "5461 10922", "10923 16383"};
    char command[160], id[64];

    cluster->n = replicas ? TEST_MEMBERS : TEST_PRIMARIES;
    for (int i = 0; i < cluster->n; i++) {
        test_dir_make(cluster->members[i].dir);
        snprintf(cluster->members[i].port, sizeof(cluster->members[i].port), "%d",
                 test_free_port());
        snprintf(cluster->bus[i], sizeof(cluster->bus[i]), "%d", test_free_port());
        test_member_begin(cluster, i);
        snprintf(command, sizeof(command), "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
        test_server_say(&cluster->members[i], command);
        if (i < TEST_PRIMARIES) {
            snprintf(command, sizeof(command), "CLUSTER ADDSLOTSRANGE %s", ranges[i]);
            test_server_say(&cluster->members[i], command);
        }
        if (i > 0) {
            snprintf(command, sizeof(command), "CLUSTER MEET 127.0.0.1 %s %s",
                     cluster->members[0].port, cluster->bus[0]);
            test_server_say(&cluster->members[i], command);
        }
    }
    for (int i = 0; i < cluster->n; i++) {
        snprintf(command, sizeof(command), "cluster_known_nodes:%d", cluster->n);
        test_server_expect(&cluster->members[i], "CLUSTER INFO", command);
        test_server_expect(&cluster->members[i], "CLUSTER INFO", "cluster_slots_ok:16384");
        test_server_expect(&cluster->members[i], "CLUSTER INFO", "cluster_state:ok");
    }
    for (int i = TEST_PRIMARIES; i < cluster->n; i++) {
        test_server_ask(&cluster->members[i - TEST_PRIMARIES], "CLUSTER MYID", id, sizeof(id));
        snprintf(command, sizeof(command), "CLUSTER REPLICATE %s", id);
        test_server_say(&cluster->members[i], command);
    }
    for (int i = TEST_PRIMARIES; i < cluster->n; i++) {
        test_server_expect(&cluster->members[i], "INFO replication", "master_link_status:up");
        test_server_expect(&cluster->members[i - TEST_PRIMARIES], "INFO replication",
                           "state=online");
    }
}

static inline void
test_cluster_stop(struct test_cluster *cluster)
{
    for (int i = 0; i < cluster->n; i++)
        test_server_stop(&cluster->members[i]);
}

#endif
