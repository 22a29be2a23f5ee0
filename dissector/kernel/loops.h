/* What the compiled loops of dissector.kernel share: arrays as arguments, and numbers in bytes.

   Arrays come as buffers. What a loop reads at is checked against the buffer's length, whatever the
   Python code before it has made sure of, so that no argument makes it read or write outside; every
   number is put together from bytes, so that neither alignment nor the machine's byte order matters.
   The GIL is given back meanwhile.

   Only Python's limited API is used: one binary serves all versions from 3.11 on. */

#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__)
#define PREFETCH(place) __builtin_prefetch(place)
/* Else the C library's own function of a name would be called, if it has one. */
#define HIDDEN __attribute__((visibility("hidden")))
#else
#define PREFETCH(place) ((void)0)
#define HIDDEN
#endif

typedef const uint8_t *bytes;

static inline uint32_t u16_big(bytes p) { return (uint32_t)p[0] << 8 | p[1]; }

static inline uint32_t u32_big(bytes p) { return u16_big(p) << 16 | u16_big(p + 2); }

static inline uint64_t u64_big(bytes p) { return (uint64_t)u32_big(p) << 32 | u32_big(p + 4); }

static inline uint32_t u32_little(bytes p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Arguments: the arrays of one call. The first that does not fit sets an error. */

#define MOST_ARRAYS 24

typedef struct {
    Py_buffer view[MOST_ARRAYS];
    int count;
    int failed;
} arrays;

static inline void release(arrays *all) {
    while (all->count) PyBuffer_Release(&all->view[--all->count]);
}

/* The memory of an array of at least `items` items of `width` bytes each; NULL where it is not. */
static inline void *array_of(arrays *all, PyObject *object, int flags, int64_t items, size_t width) {
    if (all->failed) return NULL;
    Py_buffer *view = &all->view[all->count];
    if (all->count == MOST_ARRAYS || PyObject_GetBuffer(object, view, flags)) {
        all->failed = 1;
        return NULL;
    }
    all->count++;
    if (items < 0 || view->len / (Py_ssize_t)width < items) {
        PyErr_SetString(PyExc_ValueError, "an array is shorter than the others");
        all->failed = 1;
        return NULL;
    }
    return view->buf;
}

#define INPUT(object, type, items) \
    ((const type *)array_of(&all, object, PyBUF_SIMPLE, items, sizeof(type)))
#define OUTPUT(object, type, items) \
    ((type *)array_of(&all, object, PyBUF_WRITABLE, items, sizeof(type)))
#define ITEMS(type) (all.failed ? 0 : (int64_t)(all.view[all.count - 1].len / (Py_ssize_t)sizeof(type)))

/* Numbers whose count is not known before. */

typedef struct {
    int64_t *items;
    int64_t count, room;
} growing;

/* Append `count` items; 0 where there is no memory. */
static inline int append(growing *to, const int64_t *items, int64_t count) {
    if (!count) return 1;
    if (to->room - to->count < count) {
        int64_t room = 2 * to->room + count;
        int64_t *larger = realloc(to->items, (size_t)room * sizeof(int64_t));
        if (!larger) return 0;
        to->items = larger;
        to->room = room;
    }
    memcpy(to->items + to->count, items, (size_t)count * sizeof(int64_t));
    to->count += count;
    return 1;
}

/* Their bytes, as what a loop returns; `enough`: whether there was memory. */
static inline PyObject *taken(growing *from, int enough) {
    PyObject *result = NULL;
    if (enough)
        result = PyBytes_FromStringAndSize((const char *)from->items,
                                           (Py_ssize_t)(from->count * (int64_t)sizeof(int64_t)));
    else
        PyErr_NoMemory();
    free(from->items);
    return result;
}

/* The loops; loops.pyi says what each does. */

#define LOOP(name) HIDDEN PyObject *name(PyObject *self, PyObject *args)

LOOP(walk_records);
LOOP(read_fields);
LOOP(read_headers);
LOOP(make_views);
LOOP(follow);
LOOP(advance);
LOOP(read_tcp);
LOOP(find_pairs);
LOOP(read_numbers);
LOOP(copy_ranges);
LOOP(number_words);
LOOP(locate);
LOOP(walk_frames);
LOOP(walk_bodies);
