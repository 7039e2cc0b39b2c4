/* archiver/program/subcommands.h - the commands of continuo-archiver. Each returns the program's
 * exit status. */
#ifndef CN_ARCHIVER_PROGRAM_SUBCOMMANDS_H
#define CN_ARCHIVER_PROGRAM_SUBCOMMANDS_H

#include <stdbool.h>
#include <stdio.h>

#define CN_EXIT_FAILED 1
#define CN_EXIT_USAGE 2 /* as torch-model-archiver */

/* Packs an archive. `program` is the name to use in messages. With `quiet` it prints nothing on
 * success, as torch-model-archiver does. argv has only the flags. */
int cn_archiver_create(const char *program, int argc, char **argv, bool quiet);
/* Imports the folder of a model in a Triton repository. */
int cn_archiver_import(const char *program, int argc, char **argv);
int cn_archiver_inspect(int argc, char **argv);
int cn_archiver_verify(int argc, char **argv);
/* Makes a pair of keys, and signs archives with the secret one. */
int cn_archiver_keygen(int argc, char **argv);
int cn_archiver_sign(int argc, char **argv);
/* Prints a YAML for an ONNX file. */
int cn_archiver_suggest(int argc, char **argv);

void cn_archiver_help(const char *program, FILE *out);
/* Prints the manual page continuo-archiver(1) as troff. */
void cn_archiver_man(FILE *out);

#endif
