/* worker/process/library_folders.c - reads the search path out of a shared library. */
#include "worker/process/library_folders.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEGMENTS_MAX 64

/* The file's bytes; all offsets in it are foreign, so each one is checked. */
struct image {
    const char *bytes;
    size_t len;
    const Elf64_Phdr *segments;
    unsigned n_segments;
};

static bool
holds(const struct image *image, uint64_t at, uint64_t bytes)
{
    return at <= image->len && bytes <= image->len - at;
}

static bool
read_head(struct image *image)
{
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)image->bytes;

    if (!holds(image, 0, sizeof(*head)) || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_phentsize != sizeof(Elf64_Phdr) ||
        head->e_phnum > SEGMENTS_MAX || head->e_phoff % _Alignof(Elf64_Phdr) != 0 ||
        !holds(image, head->e_phoff, head->e_phnum * sizeof(Elf64_Phdr)))
        return false;
    image->segments = (const Elf64_Phdr *)(image->bytes + head->e_phoff);
    image->n_segments = head->e_phnum;
    return true;
}

/* Where the address lies in the file; the file's length if it does not. */
static uint64_t
offset_of(const struct image *image, uint64_t address)
{
    for (unsigned i = 0; i < image->n_segments; i++) {
        const Elf64_Phdr *segment = &image->segments[i];

        if (segment->p_type == PT_LOAD && address >= segment->p_vaddr &&
            address - segment->p_vaddr < segment->p_filesz)
            return segment->p_offset + (address - segment->p_vaddr);
    }
    return image->len;
}

/* Returns the list of folders, with ':' between them; NULL: the library has none. */
static const char *
find_list(const struct image *image)
{
    const Elf64_Dyn *entries = NULL;
    uint64_t n = 0, names = image->len, list = UINT64_MAX;

    for (unsigned i = 0; i < image->n_segments && !entries; i++)
        if (image->segments[i].p_type == PT_DYNAMIC &&
            image->segments[i].p_offset % _Alignof(Elf64_Dyn) == 0 &&
            holds(image, image->segments[i].p_offset, image->segments[i].p_filesz)) {
            entries = (const Elf64_Dyn *)(image->bytes + image->segments[i].p_offset);
            n = image->segments[i].p_filesz / sizeof(*entries);
        }
    for (uint64_t i = 0; i < n && entries[i].d_tag != DT_NULL; i++)
        if (entries[i].d_tag == DT_STRTAB)
            names = offset_of(image, entries[i].d_un.d_ptr);
        else if (entries[i].d_tag == DT_RUNPATH || entries[i].d_tag == DT_RPATH)
            list = entries[i].d_un.d_val;
    if (list >= image->len || !holds(image, names, list + 1) ||
        !memchr(image->bytes + names + list, '\0', image->len - names - list))
        return NULL;
    return image->bytes + names + list;
}

static void
add_each(const char *list, const char *path, void (*add)(void *ctx, const char *folder), void *ctx)
{
    const char *slash = strrchr(path, '/');
    const int origin = slash ? (int)(slash - path) : 0;
    char folder[PATH_MAX];

    for (const char *at = list; *at; at += *at == ':') {
        const size_t len = strcspn(at, ":");
        const bool relative = strncmp(at, "$ORIGIN", 7) == 0 && len >= 7;
        const int n = relative ? snprintf(folder, sizeof(folder), "%.*s%.*s", origin, path,
                                          (int)len - 7, at + 7)
                               : snprintf(folder, sizeof(folder), "%.*s", (int)len, at);

        if (n > 0 && (size_t)n < sizeof(folder))
            add(ctx, folder);
        at += len;
    }
}

void
cn_library_folders(const char *path, void (*add)(void *ctx, const char *folder), void *ctx)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct image image = {0};
    const char *list;
    struct stat st;
    void *bytes;

    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        image.len = (size_t)st.st_size;
        bytes = mmap(NULL, image.len, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes != MAP_FAILED) {
            image.bytes = bytes;
            if (read_head(&image) && (list = find_list(&image)))
                add_each(list, path, add, ctx);
            munmap(bytes, image.len);
        }
    }
    close(fd);
}
