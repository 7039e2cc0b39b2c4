/* archiver/program/suggest_model.c - the command suggest: guesses the YAML of a file of ONNX or
 * PyTorch. Archiver only. */
#include <stdio.h>

#include "archiver/onnx/onnx_suggest.h"
#include "archiver/program/subcommands.h"
#include "archiver/torch/torch_suggest.h"

static int
suggest_torch(const char *path, struct cn_str bytes, struct cn_arena *arena, struct cn_buf *yaml,
              struct cn_error *err)
{
    struct cn_torch_file file;
    int rc = cn_torch_file_read(path, bytes, arena, &file, err);

    if (rc == 0)
        cn_torch_suggest(&file, yaml);
    return rc;
}

static int
suggest_onnx(const char *path, struct cn_str bytes, struct cn_arena *arena, struct cn_buf *yaml,
             struct cn_error *err)
{
    struct cn_onnx_file file;
    int rc = cn_onnx_file_read(path, bytes, arena, &file, err);

    if (rc)
        return rc;
    cn_onnx_suggest(&file, yaml);
    for (uint32_t i = 0; i < file.n_weights; i++)
        cn_buf_printf(yaml, "# its weights are in %.*s, which the archiver packs too\n",
                      CN_STR_ARG(file.weights[i]));
    return 0;
}

int
cn_archiver_suggest(int argc, char **argv)
{
    struct cn_error err = {0};
    struct cn_arena arena;
    struct cn_str bytes;
    struct cn_buf yaml;
    int rc;

    if (argc != 1 || argv[0][0] == '-') {
        fputs("usage: continuo-archiver suggest MODEL.onnx|MODEL.pt|MODEL.pt2 > "
              "model-config.yaml\n",
              stderr);
        return CN_EXIT_USAGE;
    }
    cn_arena_init(&arena);
    cn_buf_init(&yaml, 0);
    rc = cn_onnx_file_map(argv[0], &bytes, &err);
    if (rc == 0) {
        /* PyTorch writes zip files. */
        rc = cn_str_begins(bytes, CN_STR("PK\003\004"))
                 ? suggest_torch(argv[0], bytes, &arena, &yaml, &err)
                 : suggest_onnx(argv[0], bytes, &arena, &yaml, &err);
        cn_onnx_file_unmap(bytes);
    }
    if (rc)
        fprintf(stderr, "continuo-archiver: error: %s\n", err.message);
    else
        fwrite(yaml.data, 1, yaml.len, stdout);
    cn_buf_fini(&yaml);
    cn_arena_fini(&arena);
    return rc ? CN_EXIT_FAILED : 0;
}
