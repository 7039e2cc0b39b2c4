/* archiver/program/suggest.c - the command suggest: the YAML of an ONNX file, as far as it can be
 * guessed. Archiver only. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archiver/archive/archive_path.h"
#include "archiver/onnx/onnx_suggest.h"
#include "archiver/program/subcommands.h"

/* Maps the file, since its weights, which nobody looks at, may take gigabytes. */
static int
map(const char *path, struct cn_str *out, struct cn_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
    struct stat st;
    void *at;

    if (fd < 0 || fstat(fd, &st) != 0) {
        rc = cn_fail(err, CN_E_NOT_FOUND, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode) || st.st_size == 0) {
        rc = cn_fail(err, CN_E_INVALID_MODEL, "%s is no ONNX file: it is empty, or no file", path);
    } else {
        at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at == MAP_FAILED)
            rc = cn_fail(err, CN_E_IO, "cannot read %s: %s", path, strerror(errno));
        else
            *out = (struct cn_str){at, (size_t)st.st_size};
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

int
cn_archiver_suggest(int argc, char **argv)
{
    struct cn_error err = {0};
    struct cn_onnx_file file;
    struct cn_arena arena;
    struct cn_str bytes;
    struct cn_buf yaml;
    int rc;

    if (argc != 1 || argv[0][0] == '-') {
        fputs("usage: continuo-archiver suggest MODEL.onnx > model-config.yaml\n", stderr);
        return CN_EXIT_USAGE;
    }
    cn_arena_init(&arena);
    cn_buf_init(&yaml, 0);
    rc = map(argv[0], &bytes, &err);
    if (rc == 0) {
        rc = cn_onnx_file_read(argv[0], bytes, &arena, &file, &err);
        if (rc == 0) {
            cn_onnx_suggest(&file, &yaml);
            fwrite(yaml.data, 1, yaml.len, stdout);
        }
        for (uint32_t i = 0; rc == 0 && i < file.n_weights; i++)
            printf("# its weights are in %.*s: pack it with --extra-files\n",
                   CN_STR_ARG(file.weights[i]));
        munmap((void *)(uintptr_t)bytes.ptr, bytes.len);
    }
    if (rc)
        fprintf(stderr, "continuo-archiver: error: %s\n", err.message);
    cn_buf_fini(&yaml);
    cn_arena_fini(&arena);
    return rc ? CN_EXIT_FAILED : 0;
}
