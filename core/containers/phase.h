/* core/containers/phase.h - the life of an object as a table of phases.
 *
 * A table is an X-macro file, NAME_phases.def. Each row is one phase and says which phases may
 * follow it, by the names of their rows:
 *
 *   CN_PHASE(NAME, "what it waits for", (FOLLOWER, FOLLOWER), "who moves it")
 *
 * The first row is the phase in which a life begins. A phase with the followers () ends it.
 * scripts/phases.py checks the tables and prints them into docs/architecture.md. C code makes two
 * things of a table, both with a prefix of its own, here CN_ROW_IS_:
 *
 *   enum cn_row_phase {
 *   #define CN_PHASE(name, waits_for, followers, mover) CN_ROW_IS_##name,
 *   #include "worker/batch/row_phases.def"
 *   #undef CN_PHASE
 *       CN_ROW_IS_ = CN_PHASE_NONE,
 *   };
 *
 *   static const struct cn_phase row_phases[] = {
 *   #define CN_PHASE(name, waits_for, followers, mover)                                    \
 *       [CN_ROW_IS_##name] = {#name, CN_PHASE_SET(CN_ROW_IS_, followers)},
 *   #include "worker/batch/row_phases.def"
 *   #undef CN_PHASE
 *   };
 *
 * An object that moves otherwise than its table says is a bug: cn_phase_move aborts, in every
 * build. Nothing here locks; only the object's owner moves it.
 */
#ifndef CN_CORE_CONTAINERS_PHASE_H
#define CN_CORE_CONTAINERS_PHASE_H

#include <stdbool.h>
#include <stdint.h>

struct cn_phase {
    const char *name;
    uint32_t followers; /* bit n: phase n may follow */
};

/* The number that stands for no phase. A table has at most this many phases. */
#define CN_PHASE_NONE 31

/* Turns a list of at most eight phases in parentheses into a set of bits. Of an empty place in the
 * list only the prefix is left, which is the enumerator with the value CN_PHASE_NONE. */
#define CN_PHASE_SET(prefix, list) CN_PHASE_SET_8(prefix, CN_PHASE_ITEMS list, , , , , , , , )
#define CN_PHASE_ITEMS(...) __VA_ARGS__
#define CN_PHASE_SET_8(...) CN_PHASE_BITS(__VA_ARGS__)
#define CN_PHASE_BITS(prefix, a, b, c, d, e, f, g, h, ...)                                         \
    ((1u << prefix##a | 1u << prefix##b | 1u << prefix##c | 1u << prefix##d | 1u << prefix##e |    \
      1u << prefix##f | 1u << prefix##g | 1u << prefix##h) &                                       \
     ~(1u << CN_PHASE_NONE))

/* Aborts with the names of both phases. `object` is what the message calls the object: "a row". */
_Noreturn void cn_phase_illegal(const char *object, const struct cn_phase *from,
                                const struct cn_phase *to);

static inline bool
cn_phase_may_follow(const struct cn_phase *table, unsigned from, unsigned to)
{
    return table[from].followers >> to & 1u;
}

/* Moves an object from its phase to `to`, if the table allows that, and aborts otherwise. */
static inline void
cn_phase_move(const struct cn_phase *table, const char *object, uint8_t *phase, unsigned to)
{
    if (__builtin_expect(!cn_phase_may_follow(table, *phase, to), 0))
        cn_phase_illegal(object, &table[*phase], &table[to]);
    *phase = (uint8_t)to;
}

#endif
