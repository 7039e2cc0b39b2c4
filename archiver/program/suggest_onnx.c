/* archiver/program/suggest_onnx.c - the command suggest: guesses the YAML of an ONNX file. Archiver
 * only. */
#include <stdio.h>

#include "archiver/onnx/onnx_suggest.h"
#include "archiver/program/subcommands.h"

/* TorchScript files and packages of AOTInductor are zip files. */
static int
refuse_torch(const char *path, struct cn_str bytes, struct cn_error *err)
{
    if (!cn_str_begins(bytes, CN_STR("PK\003\004")))
        return 0;
    return cn_fail(err, CN_E_INVALID_MODEL,
                   "%.300s is a zip file, as TorchScript (.pt) and AOTInductor (.pt2) write them, "
                   "and suggest reads ONNX files only; 'continuo new torch NAME' makes a model "
                   "whose YAML you can change, and docs/torch.md explains it",
                   path);
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
    rc = cn_onnx_file_map(argv[0], &bytes, &err);
    if (rc == 0) {
        rc = refuse_torch(argv[0], bytes, &err);
        if (rc == 0)
            rc = cn_onnx_file_read(argv[0], bytes, &arena, &file, &err);
        if (rc == 0) {
            cn_onnx_suggest(&file, &yaml);
            fwrite(yaml.data, 1, yaml.len, stdout);
        }
        for (uint32_t i = 0; rc == 0 && i < file.n_weights; i++)
            printf("# its weights are in %.*s, which the archiver packs too\n",
                   CN_STR_ARG(file.weights[i]));
        cn_onnx_file_unmap(bytes);
    }
    if (rc)
        fprintf(stderr, "continuo-archiver: error: %s\n", err.message);
    cn_buf_fini(&yaml);
    cn_arena_fini(&arena);
    return rc ? CN_EXIT_FAILED : 0;
}
