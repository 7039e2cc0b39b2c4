/* tests/support/vandal.c - a handler that writes over the memory which its worker shares with the
 * server, all the time and everywhere. For tests/e2e/test_large_bodies.py, whose model has
 * bodyMemoryBytes 1048576. */
#include <continuo/handler.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MARKS_BYTES 65536
#define HALF_BYTES 1048576
#define LARGE_BYTES 65536
#define ANSWER_BYTES 300000

static unsigned char *memory;
static pthread_t thread;
static atomic_bool is_over;

static void *
vandalize(void *unused)
{
    unsigned seed = 1;

    while (!is_over) {
        for (size_t i = 0; i < MARKS_BYTES; i++)
            memory[i] = (unsigned char)rand_r(&seed);
        for (int i = 0; i < 1000; i++)
            memory[(unsigned)rand_r(&seed) % (MARKS_BYTES + 2 * HALF_BYTES)] =
                (unsigned char)rand_r(&seed);
    }
    return unused;
}

/* The first large body lies at the beginning of the server's half. */
static void
begin(const void *body)
{
    memory = (unsigned char *)body - MARKS_BYTES;
    pthread_create(&thread, NULL, vandalize, NULL);
}

static void
unload(struct continuo_model *model)
{
    (void)model;
    is_over = true;
    if (memory)
        pthread_join(thread, NULL);
}

static int
run(struct continuo_model *model, struct continuo_item *const *items, size_t n)
{
    static char answer[ANSWER_BYTES];

    (void)model;
    memset(answer, 'v', sizeof(answer));
    for (size_t i = 0; i < n; i++) {
        struct continuo_bytes body = continuo_body(items[i]);

        if (!memory && body.len >= LARGE_BYTES)
            begin(body.data);
        continuo_reply(items[i], answer, sizeof(answer));
    }
    return 0;
}

const struct continuo_handler continuo_handler = {.abi = CONTINUO_HANDLER_ABI,
                                                  .size = sizeof(struct continuo_handler),
                                                  .unload = unload,
                                                  .run = run};
