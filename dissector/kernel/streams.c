/* Streams: addresses among pieces, and the chain of frames: see dissector.streams.byteview and
   dissector.streams.frame_chain. */

#include "loops.h"

typedef struct {
    const int64_t *address, *position, *length;
    int64_t count;
} pieces;

/* Index of the piece that holds, or comes last before, an address; 0 before all of them. */
static inline int64_t piece_of(const pieces *of, int64_t at) {
    int64_t low = 0, high = of->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (of->address[middle] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? low - 1 : 0;
}

LOOP(locate) {
    PyObject *o_address, *o_position, *o_length, *o_at, *o_found, *o_left;
    long long nowhere;
    if (!PyArg_ParseTuple(args, "OOOOLOO", &o_address, &o_position, &o_length, &o_at, &nowhere,
                          &o_found, &o_left))
        return NULL;
    arrays all = {.count = 0, .failed = 0};
    pieces of;
    of.address = INPUT(o_address, int64_t, 1);
    of.count = ITEMS(int64_t);
    of.position = INPUT(o_position, int64_t, of.count);
    of.length = INPUT(o_length, int64_t, of.count);
    const int64_t *at = INPUT(o_at, int64_t, 0);
    int64_t count = ITEMS(int64_t);
    int64_t *found = OUTPUT(o_found, int64_t, count);
    int64_t *left = OUTPUT(o_left, int64_t, count);
    if (all.failed) {
        release(&all);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    int64_t piece = 0;
    for (int64_t index = 0; index < count; index++) {
        /* Mostly they ascend, and the piece is the same one, or the next. */
        int64_t next = piece + 1 < of.count ? of.address[piece + 1] : INT64_MAX;
        if (at[index] < of.address[piece] || at[index] >= next) piece = piece_of(&of, at[index]);
        int64_t inside = minus(at[index], of.address[piece]);
        int64_t rest = minus(of.length[piece], inside);
        int there = inside >= 0 && rest > 0;
        found[index] = there ? plus(of.position[piece], inside) : nowhere;
        left[index] = there ? rest : 0;
    }
    Py_END_ALLOW_THREADS;
    release(&all);
    Py_RETURN_NONE;
}

/* How the walk of a stream ended: the numbers of dissector.streams.frame_chain. */
enum { WHOLE, CUT, LOST, BAD };

/* So that the sum of an address and a frame's size does not overflow. */
static const int64_t MOST_ADDRESS = INT64_MAX - ((int64_t)1 << 33);

/* The size at an address, of which `piece` is the piece, and how the walk goes on from there. */
static int size_at(bytes data, int64_t bytes_in, const pieces *of, int64_t piece, int64_t at,
                   int64_t end, int64_t limit, const int64_t *said, int64_t *size) {
    uint32_t raw = 0;
    /* Most frames begin with a piece; what those say was fetched for all of them together. */
    int known = at == of->address[piece] && of->length[piece] >= 4;
    if (known) raw = (uint32_t)said[piece];
    for (int64_t place = at; !known && place < at + 4 && place < end; place++) {
        while (piece + 1 < of->count && of->address[piece + 1] <= place) piece++;
        int64_t inside = minus(place, of->address[piece]);
        int64_t position = plus(of->position[piece], inside);
        if (inside < 0 || inside >= of->length[piece] || position < 0 || position >= bytes_in)
            return LOST;
        raw = raw << 8 | data[position];
    }
    if (at + 4 > end) return CUT;
    *size = (int32_t)raw;
    if (*size < 0 || *size > limit) return BAD;
    return at + 4 + *size > end ? CUT : WHOLE;
}

LOOP(walk_frames) {
    PyObject *o_data, *o_address, *o_position, *o_length, *o_first, *o_end, *o_at, *o_ended,
        *o_behind, *o_said;
    long long limit;
    if (!PyArg_ParseTuple(args, "OOOOOOOLOOO", &o_data, &o_address, &o_position, &o_length, &o_said,
                          &o_first, &o_end, &limit, &o_at, &o_ended, &o_behind))
        return NULL;
    arrays all = {.count = 0, .failed = 0};
    pieces of;
    bytes data = INPUT(o_data, uint8_t, 0);
    int64_t bytes_in = ITEMS(uint8_t);
    of.address = INPUT(o_address, int64_t, 1);
    of.count = ITEMS(int64_t);
    of.position = INPUT(o_position, int64_t, of.count);
    of.length = INPUT(o_length, int64_t, of.count);
    const int64_t *said = INPUT(o_said, int64_t, of.count);
    const int64_t *first = INPUT(o_first, int64_t, 0);
    int64_t streams = ITEMS(int64_t);
    const int64_t *end = INPUT(o_end, int64_t, streams);
    int64_t *at = OUTPUT(o_at, int64_t, streams);
    int64_t *ended = OUTPUT(o_ended, int64_t, streams);
    int64_t *behind = OUTPUT(o_behind, int64_t, streams);
    if (all.failed) {
        release(&all);
        return NULL;
    }
    growing found = {NULL, 0, 0};
    int enough = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t stream = 0; stream < streams && enough; stream++) {
        int64_t piece = first[stream] < 0 || first[stream] >= of.count ? 0 : first[stream];
        int64_t place = at[stream], size = 0;
        int64_t stop = end[stream] < MOST_ADDRESS ? end[stream] : MOST_ADDRESS;
        ended[stream] = place < of.address[piece] ? LOST : WHOLE;
        behind[stream] = -1;
        while (ended[stream] == WHOLE && place < stop && enough) {
            while (piece + 1 < of.count && of.address[piece + 1] <= place) piece++;
            int how = size_at(data, bytes_in, &of, piece, place, stop, limit, said,
                              &size);
            ended[stream] = how;
            if (how == CUT && place + 4 <= stop) behind[stream] = place + 4 + size;
            if (how != WHOLE) break;
            int64_t frame[] = {place, size, piece};
            enough = append(&found, frame, 3);
            place += 4 + size;
        }
        at[stream] = place;
    }
    Py_END_ALLOW_THREADS;
    release(&all);
    return taken(&found, enough);
}
