/* Packets: the chain of a capture file's records, headers up to TCP, and who talks to whom. See
   dissector.packets and dissector.streams.flows. */

#include "loops.h"

/* The chain of records. */

enum { WALKS = 16 };

typedef struct {
    bytes data;
    int64_t size, end;
    int big;
    int64_t size_at, header, least, most;
    uint32_t stop;
    int64_t limit;
} chain;

/* The chain from starts[0] on; the walks that the others begin are joined as long as each one meets
   the next. 0 where there is no memory. */
static int follow_all(const chain *of, const int64_t *starts, int64_t walks, growing *found) {
    int64_t step = of->header > of->least ? of->header : of->least;
    for (int64_t first = 0; first < walks; first += WALKS) {
        int64_t at[WALKS], bound[WALKS], count[WALKS], room[WALKS], offset[WALKS], together = 0;
        int over[WALKS];
        int64_t some = walks - first < WALKS ? walks - first : WALKS;
        for (int64_t walk = 0; walk < some; walk++) {
            at[walk] = starts[first + walk] < 0 ? of->end : starts[first + walk];
            bound[walk] = first + walk + 1 < walks ? starts[first + walk + 1] : of->end;
            if (bound[walk] > of->end) bound[walk] = of->end;
            room[walk] = bound[walk] > at[walk] ? (bound[walk] - at[walk] - 1) / step + 1 : 0;
            if (room[walk] > of->limit) room[walk] = of->limit;
            offset[walk] = together;
            together += room[walk];
            count[walk] = over[walk] = 0;
        }
        int64_t *place = malloc((size_t)(together + 1) * sizeof(int64_t));
        if (!place) return 0;
        int going;
        do {
            going = 0;
            for (int64_t walk = 0; walk < some; walk++) {
                if (over[walk] || at[walk] >= bound[walk] || count[walk] == room[walk]) continue;
                bytes record = of->data + at[walk];
                uint32_t size = of->big ? u32_big(record + of->size_at) : u32_little(record + of->size_at);
                uint32_t kind = of->big ? u32_big(record) : u32_little(record);
                over[walk] = (of->stop && kind == of->stop) || size > of->most;
                if (of->stop && kind == of->stop) continue;
                place[offset[walk] + count[walk]++] = at[walk];
                if (over[walk]) continue;
                int64_t way = (int64_t)size + of->header;
                at[walk] += way > of->least ? way : of->least;
                going = 1;
            }
        } while (going);
        int whole = 1;
        for (int64_t walk = 0; walk < some && whole; walk++) {
            if (!append(found, place + offset[walk], count[walk])) {
                free(place);
                return 0;
            }
            whole = !over[walk] && at[walk] == bound[walk];
        }
        free(place);
        if (!whole || found->count >= of->limit) return 1;
    }
    return 1;
}

LOOP(follow) {
    PyObject *o_data, *o_starts;
    chain of;
    long long end, size_at, header, least, most, limit;
    unsigned int stop;
    if (!PyArg_ParseTuple(args, "OOLpLLLLIL", &o_data, &o_starts, &end, &of.big, &size_at, &header,
                          &least, &most, &stop, &limit))
        return NULL;
    arrays all = {.count = 0, .failed = 0};
    of.data = INPUT(o_data, uint8_t, 0);
    of.size = ITEMS(uint8_t);
    const int64_t *starts = INPUT(o_starts, int64_t, 0);
    int64_t walks = ITEMS(int64_t);
    if (!all.failed && (size_at < 0 || header < 0 || least < 0 || most < 0 || limit < 1 ||
                        size_at > 64 || header > 64 || least > 64 || header + least < 1))
        refuse(&all, "a chain's numbers are out of range");
    if (all.failed) {
        release(&all);
        return NULL;
    }
    /* Where the last record's size may stand. */
    of.end = end < of.size - size_at - 3 ? end : of.size - size_at - 3;
    of.size_at = size_at, of.header = header, of.least = least, of.most = most;
    of.stop = stop, of.limit = limit;
    growing found = {NULL, 0, 0};
    int enough = 1;
    Py_BEGIN_ALLOW_THREADS;
    enough = follow_all(&of, starts, walks, &found);
    Py_END_ALLOW_THREADS;
    release(&all);
    return taken(&found, enough);
}

/* Headers. The numbers are those of dissector.packets.headers.Kind. */

enum {
    OTHER = 0, TCP = 1, CUT = 2, MALFORMED = 3, FRAGMENT = 6, ETHERNET = 8, COOKED = 9,
    COOKED_V2 = 10, NULL_LINK = 11, RAW_IP = 12, VLAN = 13, IPV4 = 17, IPV6 = 18,
};
enum { AHEAD = 12, MOST_LAYERS = 6 };

static const uint64_t MAPPED = 0xFFFF00000000;

typedef struct {
    bytes data;
    uint8_t *kind;
    int64_t *at, *end, *wire_end;
    uint64_t *src_high, *src_low, *dst_high, *dst_low;
    bytes ethertypes, protocols, families;
} packets;

/* Whether a header of `size` bytes is there; else the packet's kind says why not. */
static inline int there(uint8_t *kind, int64_t at, int64_t size, int64_t end, int64_t wire_end) {
    if (at <= end && size <= end - at) return 1;
    *kind = at <= wire_end && size <= wire_end - at ? CUT : MALFORMED;
    return 0;
}

/* The packet is as long as its IP header says, whatever the frame around it has. */
static inline void trim(const packets *of, int64_t row, int64_t wire_end) {
    of->wire_end[row] = wire_end;
    if (of->end[row] > wire_end) of->end[row] = wire_end;
}

static inline void ipv4(const packets *of, int64_t row) {
    int64_t at = of->at[row];
    bytes header = of->data + at;
    int64_t size = (header[0] & 15) * 4, total = u16_big(header + 2);
    uint8_t kind = of->protocols[header[9]];
    if ((u16_big(header + 6) & 0x3FFF) && kind != OTHER) {
        kind = FRAGMENT;
        size = 0; /* they are put together by this header */
    }
    if (header[0] >> 4 != 4 || (header[0] & 15) < 5 || (total < size && total)) kind = MALFORMED;
    of->kind[row] = kind;
    trim(of, row, total ? at + total : of->wire_end[row]);
    of->at[row] = at + size;
    of->src_high[row] = of->dst_high[row] = 0;
    of->src_low[row] = MAPPED | u32_big(header + 12);
    of->dst_low[row] = MAPPED | u32_big(header + 16);
}

static inline void ipv6(const packets *of, int64_t row) {
    int64_t at = of->at[row] + 40;
    bytes header = of->data + of->at[row];
    int64_t payload = u16_big(header + 4);
    of->kind[row] = header[0] >> 4 == 6 ? of->protocols[header[6]] : MALFORMED;
    of->at[row] = at;
    trim(of, row, payload ? at + payload : of->wire_end[row]);
    of->src_high[row] = u64_big(header + 8);
    of->src_low[row] = u64_big(header + 16);
    of->dst_high[row] = u64_big(header + 24);
    of->dst_low[row] = u64_big(header + 32);
}

/* One header; 0 where there is none that is read here. */
static inline int step(const packets *of, int64_t row) {
    int64_t size, type_at;
    switch (of->kind[row]) {
        case ETHERNET: size = 14, type_at = 12; break;
        case COOKED: size = 16, type_at = 14; break;
        case COOKED_V2: size = 20, type_at = 0; break;
        case VLAN: size = 4, type_at = 2; break;
        case NULL_LINK: size = 4, type_at = -1; break;
        case RAW_IP: size = 1, type_at = -1; break;
        case IPV4: size = 20, type_at = -1; break;
        case IPV6: size = 40, type_at = -1; break;
        default: return 0;
    }
    int64_t at = of->at[row];
    if (!there(&of->kind[row], at, size, of->end[row], of->wire_end[row])) return 0;
    bytes header = of->data + at;
    switch (of->kind[row]) {
        case IPV4: ipv4(of, row); break;
        case IPV6: ipv6(of, row); break;
        case NULL_LINK:
            of->kind[row] = of->families[header[0] | header[3]];
            of->at[row] = at + size;
            break;
        case RAW_IP:
            of->kind[row] = header[0] >> 4 == 4 ? IPV4 : header[0] >> 4 == 6 ? IPV6 : MALFORMED;
            break;
        default:
            of->kind[row] = of->ethertypes[u16_big(header + type_at)];
            of->at[row] = at + size;
    }
    return 1;
}

LOOP(advance) {
    PyObject *o_data, *o_ethertypes, *o_protocols, *o_families, *o_kind, *o_at, *o_end, *o_wire,
        *o_src_high, *o_src_low, *o_dst_high, *o_dst_low;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOO", &o_data, &o_ethertypes, &o_protocols, &o_families,
                          &o_kind, &o_at, &o_end, &o_wire, &o_src_high, &o_src_low, &o_dst_high,
                          &o_dst_low))
        return NULL;
    arrays all = {.count = 0, .failed = 0};
    packets of;
    of.data = INPUT(o_data, uint8_t, 0);
    int64_t size = ITEMS(uint8_t);
    of.ethertypes = INPUT(o_ethertypes, uint8_t, 1 << 16);
    of.protocols = INPUT(o_protocols, uint8_t, 1 << 8);
    of.families = INPUT(o_families, uint8_t, 1 << 8);
    of.kind = OUTPUT(o_kind, uint8_t, 0);
    int64_t rows = ITEMS(uint8_t);
    of.at = OUTPUT(o_at, int64_t, rows);
    of.end = OUTPUT(o_end, int64_t, rows);
    of.wire_end = OUTPUT(o_wire, int64_t, rows);
    of.src_high = OUTPUT(o_src_high, uint64_t, rows);
    of.src_low = OUTPUT(o_src_low, uint64_t, rows);
    of.dst_high = OUTPUT(o_dst_high, uint64_t, rows);
    of.dst_low = OUTPUT(o_dst_low, uint64_t, rows);
    if (all.failed) {
        release(&all);
        return NULL;
    }
    int inside = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t row = 0; row < rows && inside; row++) {
        if (row + AHEAD < rows) {
            int64_t ahead = of.at[row + AHEAD];
            if (ahead >= 0 && ahead < size) PREFETCH(of.data + ahead);
        }
        inside = of.at[row] >= 0 && of.end[row] <= size;
        for (int layer = 0; inside && layer < MOST_LAYERS && step(&of, row); layer++) continue;
    }
    Py_END_ALLOW_THREADS;
    release(&all);
    if (!inside) return PyErr_Format(PyExc_ValueError, "a packet outside of the data");
    Py_RETURN_NONE;
}

enum { FIN = 1, SYN = 2, RST = 4 };

LOOP(read_tcp) {
    PyObject *o_data, *o_kind, *o_at, *o_end, *o_wire, *o_src_port, *o_dst_port, *o_seq, *o_ack,
        *o_flags, *o_window, *o_payload, *o_captured, *o_length;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOOOO", &o_data, &o_kind, &o_at, &o_end, &o_wire,
                          &o_src_port, &o_dst_port, &o_seq, &o_ack, &o_flags, &o_window, &o_payload,
                          &o_captured, &o_length))
        return NULL;
    arrays all = {.count = 0, .failed = 0};
    bytes data = INPUT(o_data, uint8_t, 0);
    int64_t size = ITEMS(uint8_t);
    uint8_t *kind = OUTPUT(o_kind, uint8_t, 0);
    int64_t rows = ITEMS(uint8_t);
    const int64_t *at = INPUT(o_at, int64_t, rows);
    const int64_t *end = INPUT(o_end, int64_t, rows);
    const int64_t *wire_end = INPUT(o_wire, int64_t, rows);
    uint16_t *src_port = OUTPUT(o_src_port, uint16_t, rows);
    uint16_t *dst_port = OUTPUT(o_dst_port, uint16_t, rows);
    uint32_t *seq = OUTPUT(o_seq, uint32_t, rows);
    uint32_t *ack = OUTPUT(o_ack, uint32_t, rows);
    uint8_t *flags = OUTPUT(o_flags, uint8_t, rows);
    uint16_t *window = OUTPUT(o_window, uint16_t, rows);
    int64_t *payload = OUTPUT(o_payload, int64_t, rows);
    int32_t *captured = OUTPUT(o_captured, int32_t, rows);
    int32_t *length = OUTPUT(o_length, int32_t, rows);
    if (all.failed) {
        release(&all);
        return NULL;
    }
    int64_t found = 0;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t row = 0; row < rows; row++) {
        if (row + AHEAD < rows) {
            int64_t ahead = at[row + AHEAD];
            if (ahead >= 0 && ahead < size) PREFETCH(data + ahead);
        }
        if (kind[row] != TCP) continue;
        int64_t stop = end[row] < size ? end[row] : size;
        if (at[row] < 0 || !there(&kind[row], at[row], 20, stop, wire_end[row])) continue;
        bytes header = data + at[row];
        int64_t header_size = (header[12] >> 4) * 4, begin = at[row] + header_size;
        if (header_size < 20 || begin > wire_end[row]) {
            kind[row] = MALFORMED;
            continue;
        }
        uint8_t said = header[13];
        /* No segment begins a connection and ends it: damaged, it does neither. */
        flags[row] = said & SYN && said & (FIN | RST) ? said & ~(SYN | FIN | RST) : said;
        src_port[row] = (uint16_t)u16_big(header);
        dst_port[row] = (uint16_t)u16_big(header + 2);
        seq[row] = u32_big(header + 4);
        ack[row] = u32_big(header + 8);
        window[row] = (uint16_t)u16_big(header + 14);
        payload[row] = begin < stop ? begin : stop;
        captured[row] = begin < stop ? (int32_t)(stop - begin) : 0;
        length[row] = (int32_t)(wire_end[row] - begin);
        found++;
    }
    Py_END_ALLOW_THREADS;
    release(&all);
    return PyLong_FromLongLong(found);
}

/* Who talks to whom. */

typedef struct {
    const uint64_t *high, *low;
    const uint16_t *port;
} ends;

static inline int is_after(const ends *one, const ends *other, int64_t packet) {
    if (one->high[packet] != other->high[packet]) return one->high[packet] > other->high[packet];
    if (one->low[packet] != other->low[packet]) return one->low[packet] > other->low[packet];
    return one->port[packet] > other->port[packet];
}

/* A hash of both endpoints, the smaller one first, so that both directions have the same. */
static inline uint64_t hash_of_pair(const ends *src, const ends *dst, int64_t packet,
                                    const uint64_t *key) {
    int turned = is_after(src, dst, packet);
    const ends *smaller = turned ? dst : src, *larger = turned ? src : dst;
    sip state = sip_begin(key);
    sip_add(&state, smaller->high[packet]);
    sip_add(&state, smaller->low[packet]);
    sip_add(&state, larger->high[packet]);
    sip_add(&state, larger->low[packet]);
    return sip_end(&state, (uint64_t)smaller->port[packet] << 16 | larger->port[packet]);
}

static inline int same(const ends *one, int64_t packet, const ends *other, int64_t before) {
    return one->port[packet] == other->port[before] && one->low[packet] == other->low[before] &&
           one->high[packet] == other->high[before];
}

LOOP(find_pairs) {
    PyObject *o_src_high, *o_src_low, *o_src_port, *o_dst_high, *o_dst_low, *o_dst_port, *o_key,
        *o_code, *o_turned, *o_first;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOO", &o_src_high, &o_src_low, &o_src_port, &o_dst_high,
                          &o_dst_low, &o_dst_port, &o_key, &o_code, &o_turned, &o_first))
        return NULL;
    arrays all = {.count = 0, .failed = 0};
    ends src, dst;
    src.high = INPUT(o_src_high, uint64_t, 0);
    int64_t count = ITEMS(uint64_t);
    src.low = INPUT(o_src_low, uint64_t, count);
    src.port = INPUT(o_src_port, uint16_t, count);
    dst.high = INPUT(o_dst_high, uint64_t, count);
    dst.low = INPUT(o_dst_low, uint64_t, count);
    dst.port = INPUT(o_dst_port, uint16_t, count);
    const uint64_t *key = INPUT(o_key, uint64_t, 2);
    int64_t *code = OUTPUT(o_code, int64_t, count);
    uint8_t *turned = OUTPUT(o_turned, uint8_t, count);
    int64_t *first = OUTPUT(o_first, int64_t, count);
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
    int64_t pairs = 0;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t packet = 0; packet < count; packet++) {
        size_t slot = (size_t)hash_of_pair(&src, &dst, packet, key) & (slots - 1);
        for (;; slot = (slot + 1) & (slots - 1)) {
            if (!table[slot]) {
                first[pairs] = packet;
                table[slot] = ++pairs;
            }
            int64_t before = first[table[slot] - 1];
            if (same(&src, packet, &src, before) && same(&dst, packet, &dst, before)) {
                turned[packet] = 0;
                break;
            }
            if (same(&src, packet, &dst, before) && same(&dst, packet, &src, before)) {
                turned[packet] = 1;
                break;
            }
        }
        code[packet] = table[slot] - 1;
    }
    Py_END_ALLOW_THREADS;
    free(table);
    release(&all);
    return PyLong_FromLongLong(pairs);
}
