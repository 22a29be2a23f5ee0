/* Records, and views of their keys and values: see dissector.records. */

#include "loops.h"

/* Records: magic 2 of KIP-98. */

enum { MAX_WIDTH = 10, MIN_RECORD = 7, LANES = 8 };

/* The varint at *at, which must end by `stop`; moves *at behind it. 0 where there is none. */
static inline int varint(bytes data, int64_t *at, int64_t stop, int64_t *value) {
    int64_t place = *at;
    uint64_t raw = 0;
    for (int width = 0; width < MAX_WIDTH && place < stop; width++) {
        uint8_t byte = data[place++];
        raw |= (uint64_t)(byte & 0x7F) << 7 * width;
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            *at = place;
            return 1;
        }
    }
    return 0;
}

/* A length and so many bytes, by `stop`; moves *at behind them. 0 where it is damaged. */
static inline int span(bytes data, int64_t *at, int64_t stop, int64_t *begin, int64_t *length) {
    if (!varint(data, at, stop, length) || *length < -1 || *length > stop - *at) return 0;
    *begin = *at;
    if (*length > 0) *at += *length;
    return 1;
}

LOOP(walk_records) {
    PyObject *o_data, *o_begin, *o_end, *o_count, *o_start, *o_right;
    if (!PyArg_ParseTuple(args, "OOOOOO", &o_data, &o_begin, &o_end, &o_count, &o_start, &o_right))
        return NULL;
    arrays all = {.count = 0, .failed = 0};
    bytes data = INPUT(o_data, uint8_t, 0);
    int64_t size = ITEMS(uint8_t);
    const int64_t *begin = INPUT(o_begin, int64_t, 0);
    int64_t lanes = ITEMS(int64_t);
    const int64_t *end = INPUT(o_end, int64_t, lanes);
    const int64_t *count = INPUT(o_count, int64_t, lanes);
    int64_t *start = OUTPUT(o_start, int64_t, 0);
    int64_t room = ITEMS(int64_t);
    uint8_t *right = OUTPUT(o_right, uint8_t, lanes);
    if (all.failed) {
        release(&all);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    /* Some batches in turn: each waits for the memory of one record to know of the next. */
    int64_t slot = 0;
    for (int64_t first = 0; first < lanes; first += LANES) {
        int64_t at[LANES], stop[LANES], next[LANES], last[LANES];
        int going = 0;
        int64_t some = lanes - first < LANES ? lanes - first : LANES;
        for (int64_t lane = 0; lane < some; lane++) {
            int64_t wanted = count[first + lane];
            if (wanted < 0) wanted = 0;
            if (wanted > room - slot) wanted = room - slot;
            at[lane] = begin[first + lane] < 0 ? size : begin[first + lane];
            stop[lane] = end[first + lane] > size ? size : end[first + lane];
            next[lane] = slot;
            slot += wanted;
            last[lane] = slot;
        }
        do {
            going = 0;
            for (int64_t lane = 0; lane < some; lane++) {
                if (next[lane] == last[lane]) continue;
                int64_t behind = at[lane], length;
                if (!varint(data, &behind, stop[lane], &length) || length < MIN_RECORD - 1 ||
                    length > stop[lane] - behind) {
                    at[lane] = -1; /* not the batch's end, so not right */
                    last[lane] = next[lane];
                    continue;
                }
                start[next[lane]++] = at[lane];
                at[lane] = behind + length;
                going = 1;
            }
        } while (going);
        for (int64_t lane = 0; lane < some; lane++) right[first + lane] = at[lane] == end[first + lane];
    }
    Py_END_ALLOW_THREADS;
    release(&all);
    Py_RETURN_NONE;
}

/* The headers of one record from *at on, where their count stands; how many, -1 where damaged. */
static inline int64_t count_headers(bytes data, int64_t *at, int64_t stop) {
    int64_t number, begin, length;
    if (!varint(data, at, stop, &number) || number < 0 || number > (stop - *at) / 2) return -1;
    for (int64_t header = 0; header < number; header++) {
        if (!span(data, at, stop, &begin, &length) || length < 0) return -1;
        if (!span(data, at, stop, &begin, &length)) return -1;
    }
    return number;
}

LOOP(read_fields) {
    PyObject *o_data, *o_start, *o_good, *o_time, *o_offset, *o_key, *o_keys, *o_value, *o_values,
        *o_count;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOO", &o_data, &o_start, &o_good, &o_time, &o_offset,
                          &o_key, &o_keys, &o_value, &o_values, &o_count))
        return NULL;
    arrays all = {.count = 0, .failed = 0};
    bytes data = INPUT(o_data, uint8_t, 0);
    int64_t size = ITEMS(uint8_t);
    const int64_t *start = INPUT(o_start, int64_t, 0);
    int64_t records = ITEMS(int64_t);
    uint8_t *good = OUTPUT(o_good, uint8_t, records);
    int64_t *timestamp_delta = OUTPUT(o_time, int64_t, records);
    int64_t *offset_delta = OUTPUT(o_offset, int64_t, records);
    int64_t *key_at = OUTPUT(o_key, int64_t, records);
    int64_t *key_length = OUTPUT(o_keys, int64_t, records);
    int64_t *value_at = OUTPUT(o_value, int64_t, records);
    int64_t *value_length = OUTPUT(o_values, int64_t, records);
    int64_t *header_count = OUTPUT(o_count, int64_t, records);
    if (all.failed) {
        release(&all);
        return NULL;
    }
    int64_t headers = 0;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t record = 0; record < records; record++) {
        if (record + LANES < records) {
            int64_t ahead = start[record + LANES];
            if (ahead >= 0 && ahead < size) PREFETCH(data + ahead);
        }
        int64_t at = start[record], length, delta, number, key = 0, keys = 0, value = 0, values = 0;
        int64_t time = 0;
        int whole = at >= 0 && varint(data, &at, size, &length) && length > 0 && length <= size - at;
        int64_t stop = whole ? at + length : 0;
        at += whole; /* attributes: no bit of them is in use */
        whole = whole && varint(data, &at, stop, &time) && varint(data, &at, stop, &delta) &&
                span(data, &at, stop, &key, &keys) && span(data, &at, stop, &value, &values);
        number = whole ? count_headers(data, &at, stop) : -1;
        whole = number >= 0 && at == stop;
        good[record] = (uint8_t)whole;
        timestamp_delta[record] = whole ? time : 0;
        offset_delta[record] = whole ? delta : 0;
        key_at[record] = whole ? key : 0;
        key_length[record] = whole ? keys : -1;
        value_at[record] = whole ? value : 0;
        value_length[record] = whole ? values : -1;
        header_count[record] = whole ? number : 0;
        headers += whole ? number : 0;
    }
    Py_END_ALLOW_THREADS;
    release(&all);
    return PyLong_FromLongLong(headers);
}

LOOP(read_headers) {
    PyObject *o_data, *o_at, *o_count, *o_key, *o_keys, *o_value, *o_values;
    if (!PyArg_ParseTuple(args, "OOOOOOO", &o_data, &o_at, &o_count, &o_key, &o_keys, &o_value,
                          &o_values))
        return NULL;
    arrays all = {.count = 0, .failed = 0};
    bytes data = INPUT(o_data, uint8_t, 0);
    int64_t size = ITEMS(uint8_t);
    const int64_t *begin = INPUT(o_at, int64_t, 0);
    int64_t records = ITEMS(int64_t);
    const int64_t *count = INPUT(o_count, int64_t, records);
    int64_t *key_at = OUTPUT(o_key, int64_t, 0);
    int64_t room = ITEMS(int64_t);
    int64_t *key_length = OUTPUT(o_keys, int64_t, room);
    int64_t *value_at = OUTPUT(o_value, int64_t, room);
    int64_t *value_length = OUTPUT(o_values, int64_t, room);
    if (all.failed) {
        release(&all);
        return NULL;
    }
    int64_t slot = 0;
    int whole = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t record = 0; record < records && whole; record++) {
        int64_t at = begin[record], number;
        if (!count[record]) continue;
        whole = at >= 0 && varint(data, &at, size, &number) && number == count[record] &&
                number <= room - slot;
        for (int64_t header = 0; whole && header < number; header++, slot++)
            whole = span(data, &at, size, key_at + slot, key_length + slot) &&
                    span(data, &at, size, value_at + slot, value_length + slot);
    }
    Py_END_ALLOW_THREADS;
    release(&all);
    if (!whole) return PyErr_Format(PyExc_ValueError, "no such headers");
    Py_RETURN_NONE;
}

/* Views of byte strings, as Arrow lays them out. */

enum { INLINE = 12, VIEW = 16 };

static inline void put_little(uint8_t *to, uint32_t value) {
    for (int byte = 0; byte < 4; byte++) to[byte] = (uint8_t)(value >> 8 * byte);
}

LOOP(make_views) {
    PyObject *o_data, *o_at, *o_length, *o_views;
    unsigned int number;
    if (!PyArg_ParseTuple(args, "OIOOO", &o_data, &number, &o_at, &o_length, &o_views)) return NULL;
    arrays all = {.count = 0, .failed = 0};
    bytes data = INPUT(o_data, uint8_t, 0);
    int64_t size = ITEMS(uint8_t);
    const int64_t *at = INPUT(o_at, int64_t, 0);
    int64_t strings = ITEMS(int64_t);
    const int64_t *length = INPUT(o_length, int64_t, strings);
    uint8_t *view = OUTPUT_BYTES(o_views, strings, VIEW);
    if (all.failed) {
        release(&all);
        return NULL;
    }
    int whole = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t string = 0; string < strings; string++, view += VIEW) {
        int64_t from = at[string], bytes_in = length[string] > 0 ? length[string] : 0;
        if (bytes_in > INT32_MAX || from < 0 || from > size || bytes_in > size - from ||
            (bytes_in > INLINE && from > INT32_MAX)) {
            whole = 0;
            break;
        }
        put_little(view, (uint32_t)bytes_in);
        if (bytes_in > INLINE) {
            memcpy(view + 4, data + from, 4);
            put_little(view + 8, number);
            put_little(view + 12, (uint32_t)from);
        } else {
            memset(view + 4, 0, INLINE);
            memcpy(view + 4, data + from, (size_t)bytes_in);
        }
    }
    Py_END_ALLOW_THREADS;
    release(&all);
    if (!whole) return PyErr_Format(PyExc_ValueError, "a string outside of the data");
    Py_RETURN_NONE;
}
