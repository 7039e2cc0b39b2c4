/* core/containers/list.h - an intrusive doubly linked list: the node is a member of the object, so
 * that adding needs no allocation and removing cannot fail. A node that is not in a list points to
 * itself. No locks; one thread. */
#ifndef CN_CORE_CONTAINERS_LIST_H
#define CN_CORE_CONTAINERS_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct cn_list {
    struct cn_list *prev, *next;
};

#define cn_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline void
cn_list_init(struct cn_list *node)
{
    node->prev = node->next = node;
}

static inline bool
cn_list_empty(const struct cn_list *head)
{
    return head->next == head;
}

/* Is this node in a list? */
static inline bool
cn_list_linked(const struct cn_list *node)
{
    return node->next != node;
}

static inline void
cn_list_insert_after(struct cn_list *at, struct cn_list *node)
{
    node->prev = at;
    node->next = at->next;
    at->next->prev = node;
    at->next = node;
}

static inline void
cn_list_push_back(struct cn_list *head, struct cn_list *node)
{
    cn_list_insert_after(head->prev, node);
}

static inline void
cn_list_push_front(struct cn_list *head, struct cn_list *node)
{
    cn_list_insert_after(head, node);
}

/* Takes a node out of its list. Does nothing if it is not in one. */
static inline void
cn_list_remove(struct cn_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    cn_list_init(node);
}

/* Takes out and returns the first node; NULL if the list is empty. */
static inline struct cn_list *
cn_list_pop_front(struct cn_list *head)
{
    struct cn_list *node = head->next;

    if (node == head)
        return NULL;
    cn_list_remove(node);
    return node;
}

/* Moves all nodes of `from` to the end of `to`. */
static inline void
cn_list_splice_back(struct cn_list *to, struct cn_list *from)
{
    if (cn_list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    cn_list_init(from);
}

#define cn_list_for_each(pos, head) for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)
/* The same loop, in whose body `pos` may be removed. */
#define cn_list_for_each_safe(pos, tmp, head)                                                      \
    for ((pos) = (head)->next, (tmp) = (pos)->next; (pos) != (head);                               \
         (pos) = (tmp), (tmp) = (pos)->next)

#endif
