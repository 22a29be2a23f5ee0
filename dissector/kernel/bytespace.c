/* Numbers, ranges and words at many places in the bytes: see dissector.streams.byteview. */

#include "loops.h"

enum { SOON = 24 };

static inline void touch(bytes data, int64_t size, const int64_t *at, int64_t index, int64_t count) {
    if (index + SOON < count && at[index + SOON] >= 0 && at[index + SOON] < size)
        PREFETCH(data + at[index + SOON]);
}

LOOP(read_numbers) {
    PyObject *o_data, *o_at, *o_numbers;
    int width;
    if (!PyArg_ParseTuple(args, "OOiO", &o_data, &o_at, &width, &o_numbers)) return NULL;
    arrays all = {.count = 0, .failed = 0};
    bytes data = INPUT(o_data, uint8_t, 0);
    int64_t size = ITEMS(uint8_t);
    const int64_t *at = INPUT(o_at, int64_t, 0);
    int64_t count = ITEMS(int64_t);
    if (!all.failed && width != 2 && width != 4 && width != 8)
        refuse(&all, "the width is not 2, 4 or 8");
    uint8_t *numbers = OUTPUT_BYTES(o_numbers, count, (size_t)width);
    if (all.failed) {
        release(&all);
        return NULL;
    }
    int inside = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t index = 0; index < count && inside; index++) {
        touch(data, size, at, index, count);
        inside = at[index] >= 0 && at[index] <= size - width;
        if (!inside) break;
        bytes from = data + at[index];
        if (width == 2) {
            uint16_t value = (uint16_t)u16_big(from);
            memcpy(numbers + 2 * index, &value, 2);
        } else if (width == 4) {
            uint32_t value = u32_big(from);
            memcpy(numbers + 4 * index, &value, 4);
        } else {
            uint64_t value = u64_big(from);
            memcpy(numbers + 8 * index, &value, 8);
        }
    }
    Py_END_ALLOW_THREADS;
    release(&all);
    if (!inside) return PyErr_Format(PyExc_ValueError, "a number outside of the data");
    Py_RETURN_NONE;
}

LOOP(copy_ranges) {
    PyObject *o_data, *o_at, *o_length, *o_copies;
    if (!PyArg_ParseTuple(args, "OOOO", &o_data, &o_at, &o_length, &o_copies)) return NULL;
    arrays all = {.count = 0, .failed = 0};
    bytes data = INPUT(o_data, uint8_t, 0);
    int64_t size = ITEMS(uint8_t);
    const int64_t *at = INPUT(o_at, int64_t, 0);
    int64_t count = ITEMS(int64_t);
    const int64_t *length = INPUT(o_length, int64_t, count);
    uint8_t *copies = OUTPUT(o_copies, uint8_t, 0);
    int64_t room = ITEMS(uint8_t);
    if (all.failed) {
        release(&all);
        return NULL;
    }
    int inside = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t index = 0; index < count; index++) {
        touch(data, size, at, index, count);
        int64_t from = at[index], bytes_in = length[index];
        inside = bytes_in >= 0 && bytes_in <= room && from >= 0 && bytes_in <= size - from;
        if (!inside) break;
        memcpy(copies, data + from, (size_t)bytes_in);
        copies += bytes_in;
        room -= bytes_in;
    }
    Py_END_ALLOW_THREADS;
    release(&all);
    if (!inside) return PyErr_Format(PyExc_ValueError, "a range outside of the data");
    Py_RETURN_NONE;
}

static inline uint64_t hashed(bytes word, int64_t length, const uint64_t *key) {
    sip state = sip_begin(key);
    uint64_t last = (uint64_t)length << 56;
    for (; length >= 8; length -= 8, word += 8) sip_add(&state, u64_little(word));
    for (int64_t index = 0; index < length; index++) last |= (uint64_t)word[index] << 8 * index;
    return sip_end(&state, last);
}

LOOP(hash_words) {
    PyObject *o_data, *o_at, *o_length, *o_key, *o_hash;
    if (!PyArg_ParseTuple(args, "OOOOO", &o_data, &o_at, &o_length, &o_key, &o_hash)) return NULL;
    arrays all = {.count = 0, .failed = 0};
    bytes data = INPUT(o_data, uint8_t, 0);
    int64_t size = ITEMS(uint8_t);
    const int64_t *at = INPUT(o_at, int64_t, 0);
    int64_t count = ITEMS(int64_t);
    const int64_t *length = INPUT(o_length, int64_t, count);
    const uint64_t *key = INPUT(o_key, uint64_t, 2);
    uint64_t *hash = OUTPUT(o_hash, uint64_t, count);
    if (all.failed) {
        release(&all);
        return NULL;
    }
    int inside = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t index = 0; index < count && inside; index++) {
        touch(data, size, at, index, count);
        int64_t from = at[index], bytes_in = length[index];
        inside = bytes_in >= 0 && from >= 0 && bytes_in <= size - from;
        if (inside) hash[index] = hashed(data + from, bytes_in, key);
    }
    Py_END_ALLOW_THREADS;
    release(&all);
    if (!inside) return PyErr_Format(PyExc_ValueError, "a word outside of the data");
    Py_RETURN_NONE;
}

LOOP(number_words) {
    PyObject *o_data, *o_at, *o_length, *o_key, *o_code, *o_first;
    if (!PyArg_ParseTuple(args, "OOOOOO", &o_data, &o_at, &o_length, &o_key, &o_code, &o_first))
        return NULL;
    arrays all = {.count = 0, .failed = 0};
    bytes data = INPUT(o_data, uint8_t, 0);
    int64_t size = ITEMS(uint8_t);
    const int64_t *at = INPUT(o_at, int64_t, 0);
    int64_t count = ITEMS(int64_t);
    const int64_t *length = INPUT(o_length, int64_t, count);
    const uint64_t *key = INPUT(o_key, uint64_t, 2);
    int32_t *code = OUTPUT(o_code, int32_t, count);
    int64_t *first = OUTPUT(o_first, int64_t, count);
    if (!all.failed && count > INT32_MAX) refuse(&all, "too many words");
    if (all.failed) {
        release(&all);
        return NULL;
    }
    size_t slots = 64;
    while (slots < 2 * (size_t)count) slots *= 2;
    int64_t *table = calloc(slots, sizeof(int64_t)); /* 1 + code; 0 for none */
    if (!table) {
        release(&all);
        return PyErr_NoMemory();
    }
    int64_t words = 0;
    int inside = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t index = 0; index < count; index++) {
        touch(data, size, at, index, count);
        int64_t from = at[index], bytes_in = length[index];
        inside = bytes_in >= 0 && from >= 0 && bytes_in <= size - from;
        if (!inside) break;
        size_t slot = (size_t)hashed(data + from, bytes_in, key) & (slots - 1);
        for (;; slot = (slot + 1) & (slots - 1)) {
            if (!table[slot]) {
                first[words] = index;
                table[slot] = ++words;
            }
            int64_t before = first[table[slot] - 1];
            if (length[before] == bytes_in && !memcmp(data + at[before], data + from, (size_t)bytes_in))
                break;
        }
        code[index] = (int32_t)(table[slot] - 1);
    }
    Py_END_ALLOW_THREADS;
    free(table);
    release(&all);
    if (!inside) return PyErr_Format(PyExc_ValueError, "a word outside of the data");
    return PyLong_FromLongLong(words);
}
