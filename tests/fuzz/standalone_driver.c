/* tests/fuzz/standalone_driver.c - runs a fuzz target without libFuzzer.
 *
 * With it, each build with any compiler can run the corpus: the files or folders
 * of the command line as they are, cut at every length, and with bytes changed by
 * a generator with a fixed seed, so that each run does the same.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "tests/fuzz/fuzz.h"

#define FILE_BYTES_MAX (1 << 20)
#define CUT_ALL_BYTES_MAX 4096
#define CHANGES 300
#define CHANGES_SECONDS_MAX 10

static unsigned long runs;
static unsigned files;

/* Makes a copy of exactly this size, so that the sanitizer notices a read beyond its end. */
static void
run(const uint8_t *bytes, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);

    if (!copy)
        abort();
    if (len)
        memcpy(copy, bytes, len);
    LLVMFuzzerTestOneInput(copy, len);
    free(copy);
    runs++;
}

static uint32_t
next_random(void)
{
    static uint32_t x = 88675123;

    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return x;
}

static void
run_changed(const uint8_t *bytes, size_t len)
{
    static const uint8_t favourites[] = {0x00, 0x01, 0x7f, 0x80, 0xff, '"', '\\', '\n'};
    uint8_t *changed = malloc(len ? len : 1);
    unsigned i, n;

    if (!changed)
        abort();
    for (i = 0; len > 0 && i < CHANGES; i++) {
        if (clock() / CLOCKS_PER_SEC > CHANGES_SECONDS_MAX)
            break;
        memcpy(changed, bytes, len);
        for (n = 1 + next_random() % 4; n > 0; n--) {
            size_t at = next_random() % len;

            changed[at] = next_random() % 2 ? favourites[next_random() % sizeof(favourites)]
                                            : (uint8_t)next_random();
        }
        run(changed, len);
    }
    free(changed);
}

static void
run_file(const char *path)
{
    uint8_t *bytes = malloc(FILE_BYTES_MAX);
    FILE *file = fopen(path, "rb");
    size_t len, cut;

    if (!file || !bytes) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    len = fread(bytes, 1, FILE_BYTES_MAX, file);
    fclose(file);
    run(bytes, len);
    if (cn_fuzz_is_valid && strstr(path, ".bin") && !cn_fuzz_is_valid(bytes, len)) {
        fprintf(stderr, "%s is not valid: its make_*.py has another layout than the decoder\n",
                path);
        exit(1);
    }
    for (cut = 0; cut < len && len <= CUT_ALL_BYTES_MAX; cut++)
        run(bytes, cut);
    run_changed(bytes, len);
    free(bytes);
    files++;
}

static void
run_path(const char *path)
{
    struct dirent **names;
    struct stat st;
    int i, n;

    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        run_file(path);
        return;
    }
    n = scandir(path, &names, NULL, alphasort);
    for (i = 0; i < n; i++) {
        char name[4096];

        snprintf(name, sizeof(name), "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.')
            run_file(name);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
}

int
main(int argc, char **argv)
{
    int i;

    run((const uint8_t *)"", 0);
    for (i = 1; i < argc; i++)
        run_path(argv[i]);
    printf("%u files, %lu inputs\n", files, runs);
    return files ? 0 : 1; /* a target without a corpus tests nothing */
}
