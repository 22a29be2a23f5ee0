/* What the compiled loops of dissector.kernel share: arrays as arguments, and numbers in bytes.

   Arrays come as buffers. A loop checks every position against the length of its buffers, whatever
   the Python code before it has checked, so that no argument makes it read or write outside. Buffers
   have the item size that the loop expects, those that are written overlap no other one, and a buffer
   that is not aligned is copied. Numbers in `data` are put together from bytes, so that neither
   alignment nor the machine's byte order matters. The loops release the GIL.

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

static inline uint64_t u64_little(bytes p) { return u32_little(p) | (uint64_t)u32_little(p + 4) << 32; }

/* Arguments: the arrays of one call. The first that does not fit sets an error. */

#define MOST_ARRAYS 24

typedef struct {
    Py_buffer view[MOST_ARRAYS];
    void *copy[MOST_ARRAYS]; /* of a buffer that is not aligned, else NULL */
    int count;
    int failed;
} arrays;

static inline void release(arrays *all) {
    while (all->count) {
        int last = --all->count;
        Py_buffer *view = &all->view[last];
        if (all->copy[last] && !view->readonly) memcpy(view->buf, all->copy[last], (size_t)view->len);
        free(all->copy[last]);
        PyBuffer_Release(view);
    }
}

static inline void *refuse(arrays *all, const char *why) {
    PyErr_SetString(PyExc_ValueError, why);
    all->failed = 1;
    return NULL;
}

/* Whether what one buffer holds may change with what is written to another. */
static inline int overlap(const Py_buffer *one, const Py_buffer *other) {
    uintptr_t begin = (uintptr_t)one->buf, other_begin = (uintptr_t)other->buf;
    return (!one->readonly || !other->readonly) && one->len && other->len &&
           begin < other_begin + (size_t)other->len && other_begin < begin + (size_t)one->len;
}

/* Whether items are integers, or truth values, in the machine's byte order. */
static inline int has_integers(const char *format) {
    if (!format) return 1; /* bytes */
    if (*format == '@' || *format == '=') format++;
    return *format && strchr("?cbBhHiIlLqQnN", *format) && !format[1];
}

/* The memory of an array of at least `items` items of `width` bytes each; NULL where it does not fit.
   `any_width`: the array may have items of any size. */
static inline void *array_of(arrays *all, PyObject *object, int is_output, int64_t items,
                             size_t width, int any_width) {
    if (all->failed) return NULL;
    if (all->count == MOST_ARRAYS) return refuse(all, "too many arrays");
    Py_buffer *view = &all->view[all->count];
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (is_output ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags)) {
        all->failed = 1;
        if (!PyErr_ExceptionMatches(PyExc_BufferError)) return NULL;
        PyErr_Clear();
        return refuse(all, "an array is not contiguous, or cannot be written");
    }
    view->readonly = !is_output;
    all->copy[all->count++] = NULL;
    if (!has_integers(view->format) || (!any_width && view->itemsize != (Py_ssize_t)width))
        return refuse(all, "an array has items of another type");
    if (items < 0 || view->len / (Py_ssize_t)width < items)
        return refuse(all, "an array is shorter than the others");
    for (int before = 0; before < all->count - 1; before++)
        if (overlap(view, &all->view[before])) return refuse(all, "two arrays overlap");
    if (any_width || (uintptr_t)view->buf % width == 0) return view->buf;
    void *copy = all->copy[all->count - 1] = malloc((size_t)view->len + 1);
    if (!copy) {
        PyErr_NoMemory();
        all->failed = 1;
        return NULL;
    }
    return memcpy(copy, view->buf, (size_t)view->len);
}

#define INPUT(object, type, items) ((const type *)array_of(&all, object, 0, items, sizeof(type), 0))
#define OUTPUT(object, type, items) ((type *)array_of(&all, object, 1, items, sizeof(type), 0))
/* Bytes of an array whose items the loop puts together itself. */
#define OUTPUT_BYTES(object, items, width) ((uint8_t *)array_of(&all, object, 1, items, width, 1))
#define ITEMS(type) (all.failed ? 0 : (int64_t)(all.view[all.count - 1].len / (Py_ssize_t)sizeof(type)))

/* Sums of numbers that nothing was checked of: they wrap. */

static inline int64_t plus(int64_t one, int64_t other) {
    return (int64_t)((uint64_t)one + (uint64_t)other);
}

static inline int64_t minus(int64_t one, int64_t other) {
    return (int64_t)((uint64_t)one - (uint64_t)other);
}

/* SipHash-1-3 (Aumasson, Bernstein: SipHash, a fast short-input PRF): nobody who does not know the
   key can choose words that have the same hash. The key is another one in each process. */

typedef struct {
    uint64_t v0, v1, v2, v3;
} sip;

static inline uint64_t rotated(uint64_t value, int bits) { return value << bits | value >> (64 - bits); }

static inline sip sip_begin(const uint64_t *key) {
    return (sip){key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
                 key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
}

static inline void sip_round(sip *of) {
    of->v0 += of->v1, of->v2 += of->v3;
    of->v1 = rotated(of->v1, 13) ^ of->v0, of->v3 = rotated(of->v3, 16) ^ of->v2;
    of->v0 = rotated(of->v0, 32);
    of->v2 += of->v1, of->v0 += of->v3;
    of->v1 = rotated(of->v1, 17) ^ of->v2, of->v3 = rotated(of->v3, 21) ^ of->v0;
    of->v2 = rotated(of->v2, 32);
}

static inline void sip_add(sip *of, uint64_t word) {
    of->v3 ^= word;
    sip_round(of);
    of->v0 ^= word;
}

/* `last`: the bytes behind the last whole word, and the length of all in the highest byte. */
static inline uint64_t sip_end(sip *of, uint64_t last) {
    sip_add(of, last);
    of->v2 ^= 0xFF;
    for (int turn = 0; turn < 3; turn++) sip_round(of);
    return of->v0 ^ of->v1 ^ of->v2 ^ of->v3;
}

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
LOOP(hash_words);
LOOP(number_words);
LOOP(locate);
LOOP(walk_frames);
LOOP(walk_bodies);
