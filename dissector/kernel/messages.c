/* Messages: the fields of their bodies that were asked for. See dissector.protocol.decoder_program. */

#include "loops.h"

enum { MOST_PARTS = 3 };

/* Arrays that are filled together: first those of the caller, then larger ones of its own. */
typedef struct {
    int64_t *parts[MOST_PARTS];
    int64_t count, room;
    int is_own;
} list;

/* What a program is made of; see dissector.protocol.decoder_program. */

typedef struct {
    int32_t kind, width, is_signed, nullable, tag, column, inside, level, first, count;
} node;

enum { NODE_INTS = 10 };
enum { MOST_WIDTH = 1 << 16 }; /* of fixed fields in a row that nobody asks for */
enum { MOST_DEPTH = 64 };
/* See dissector.protocol.element_limits. */
enum { LEAST_ELEMENTS = 1 << 14, MOST_ELEMENTS = 1 << 21, ELEMENT_SIZE = 4 };
enum { FIXED, TEXT, BYTES, STRUCT, ARRAY, KINDS };
enum { MOST_COLUMNS = 256, COLUMN_PARTS = 3, LEVEL_PARTS = 2, AHEAD = 16, LINE = 64 };

typedef struct {
    bytes data;
    const node *nodes;
    int flexible, no_memory;
    int64_t elements; /* that the arrays of this message may still have */
    list *columns; /* row, address and value of each */
    list *levels;  /* owner and ordinal of each */
} walker;

/* Room for one item more in each part; 0 where there is no memory. */
static int grow(walker *of, list *to, int parts) {
    int64_t room = 2 * to->room + 1024;
    int64_t *larger[MOST_PARTS] = {NULL};
    for (int part = 0; part < parts; part++) {
        larger[part] = malloc((size_t)room * sizeof(int64_t));
        if (!larger[part]) {
            for (int other = 0; other < part; other++) free(larger[other]);
            of->no_memory = 1;
            return 0;
        }
    }
    for (int part = 0; part < parts; part++) {
        if (to->count) memcpy(larger[part], to->parts[part], (size_t)to->count * sizeof(int64_t));
        if (to->is_own) free(to->parts[part]);
        to->parts[part] = larger[part];
    }
    to->room = room;
    to->is_own = 1;
    return 1;
}

static inline void keep(walker *of, const node *field, int64_t row, int64_t at, int64_t value) {
    if (field->column < 0) return;
    list *to = of->columns + field->column;
    if (to->count == to->room && !grow(of, to, COLUMN_PARTS)) return;
    to->parts[0][to->count] = row;
    to->parts[1][to->count] = at;
    to->parts[2][to->count++] = value;
}

static inline int64_t number(bytes p, int width, int is_signed) {
    switch (width) {
    case 1: return is_signed ? (int64_t)(int8_t)p[0] : p[0];
    case 2: return is_signed ? (int64_t)(int16_t)u16_big(p) : (int64_t)u16_big(p);
    case 4: return is_signed ? (int64_t)(int32_t)u32_big(p) : (int64_t)u32_big(p);
    case 8: return (int64_t)u64_big(p);
    default: return width; /* a range of bytes */
    }
}

/* All that walk return the address behind what they walked, -1 where it cannot be right. */

/* An unsigned varint (KIP-482), of five bytes at most. */
static inline int64_t varint(bytes data, int64_t at, int64_t end, int64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (at >= end) return -1;
        uint8_t byte = data[at++];
        *value |= (int64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return at;
    }
    return -1;
}

/* A length or count, -1 for null, never more than the bytes that follow. */
static inline int64_t read_length(
    const walker *of, const node *field, int64_t at, int64_t end, int width, int64_t *length) {
    if (of->flexible) {
        at = varint(of->data, at, end, length);
        if (at < 0) return -1;
        --*length;
    } else {
        if (end - at < width) return -1;
        *length = number(of->data + at, width, 1);
        at += width;
    }
    return *length > end - at || *length < (field->nullable ? -1 : 0) ? -1 : at;
}

static int64_t walk_value(walker *of, const node *field, int64_t row, int64_t at, int64_t end);

/* Tagged fields (KIP-482): known ones must fill their size, others are skipped. */
static int64_t walk_tags(walker *of, const node *owner, int64_t row, int64_t at, int64_t end) {
    int64_t left, tag, size;
    at = varint(of->data, at, end, &left);
    for (; at >= 0 && left > 0; left--) {
        at = varint(of->data, at, end, &tag);
        if (at < 0) return -1;
        at = varint(of->data, at, end, &size);
        if (at < 0 || size > end - at) return -1;
        int64_t behind = at + size;
        for (int32_t child = 0; child < owner->count; child++) {
            const node *field = of->nodes + owner->first + child;
            if (field->tag != tag) continue;
            if (walk_value(of, field, row, at, behind) != behind) return -1;
            break;
        }
        at = behind;
    }
    return at;
}

static int64_t walk_struct(walker *of, const node *owner, int64_t row, int64_t at, int64_t end) {
    const node *field = of->nodes + owner->first;
    for (int32_t child = 0; child < owner->count && at >= 0; child++, field++) {
        if (field->tag >= 0) continue;
        if (field->kind == FIXED) {
            if (end - at < field->width) return -1;
            if (field->column >= 0)
                keep(of, field, row, at, number(of->data + at, field->width, field->is_signed));
            at += field->width;
        } else {
            at = walk_value(of, field, row, at, end);
        }
    }
    return at >= 0 && of->flexible ? walk_tags(of, owner, row, at, end) : at;
}

static int64_t walk_array(walker *of, const node *field, int64_t row, int64_t at, int64_t end) {
    int64_t count;
    at = read_length(of, field, at, end, 4, &count);
    if (at < 0 || count <= 0) return at;
    of->elements -= count;
    if (of->elements < 0) return -1;
    const node *element = of->nodes + field->first;
    if (field->level < 0 && element->kind == FIXED)
        return count > (end - at) / element->width ? -1 : at + count * element->width;
    list *level = field->level < 0 ? NULL : of->levels + field->level;
    for (int64_t index = 0; index < count && at >= 0; index++) {
        int64_t inner = 0;
        if (level) {
            if (level->count == level->room && !grow(of, level, LEVEL_PARTS)) return -1;
            inner = level->count++;
            level->parts[0][inner] = row;
            level->parts[1][inner] = index;
        }
        at = element->kind == STRUCT ? walk_struct(of, element, inner, at, end)
                                     : walk_value(of, element, inner, at, end);
    }
    return at;
}

static int64_t walk_value(walker *of, const node *field, int64_t row, int64_t at, int64_t end) {
    int64_t length;
    switch (field->kind) {
    case FIXED:
        if (end - at < field->width) return -1;
        keep(of, field, row, at, number(of->data + at, field->width, field->is_signed));
        return at + field->width;
    case TEXT:
    case BYTES:
        at = read_length(of, field, at, end, field->kind == TEXT ? 2 : 4, &length);
        if (at < 0) return -1;
        keep(of, field, row, at, length);
        return length > 0 ? at + length : at;
    case STRUCT:
        if (field->nullable) {
            int64_t null = field->tag < 0 ? -1 : 0, marker;
            if (field->tag >= 0) { /* KIP-893 */
                at = varint(of->data, at, end, &marker);
                if (at < 0) return -1;
            } else {
                if (at >= end) return -1;
                marker = (int8_t)of->data[at++];
            }
            if (marker == null) return at;
            if (marker != 1) return -1;
        }
        return walk_struct(of, field, row, at, end);
    default:
        return walk_array(of, field, row, at, end);
    }
}

/* Whether each index in a program is inside of it. */
static int is_inside(const node *nodes, int64_t count, int64_t columns, int64_t levels) {
    for (int64_t index = 0; index < count; index++) {
        const node *each = nodes + index;
        if (each->kind < 0 || each->kind >= KINDS || each->column >= columns ||
            each->level >= levels)
            return 0;
        if (each->kind == FIXED && (each->width < 1 || each->width > MOST_WIDTH)) return 0;
        if (each->kind < STRUCT) continue;
        if (each->count < (each->kind == ARRAY) || each->first <= index ||
            (int64_t)each->first + each->count > count)
            return 0;
    }
    return count > 0 && nodes[0].kind == STRUCT;
}

/* Whether a program is a tree of at most MOST_DEPTH floors, so that a walk of it ends and recursion
   does not use up the stack. `depth`: a zero for each node. */
static int is_tree(const node *nodes, int64_t count, uint8_t *depth) {
    for (int64_t index = 0; index < count; index++) {
        if (nodes[index].kind < STRUCT) continue;
        if (depth[index] == MOST_DEPTH) return 0;
        for (int32_t child = 0; child < (nodes[index].kind == ARRAY ? 1 : nodes[index].count); child++) {
            if (depth[nodes[index].first + child]) return 0; /* of two owners */
            depth[nodes[index].first + child] = depth[index] + 1;
        }
    }
    return 1;
}

/* Of a message that is not right, what is kept: nothing, or of one that is cut at `there`, the fields
   outside arrays that are there. */
static void mend(walker *of, const int64_t *marks, int columns, int levels, const int8_t *root,
                 const int32_t *width, int64_t there) {
    for (int column = 0; column < columns; column++) {
        list *of_column = of->columns + column;
        int64_t kept = marks[column];
        for (int64_t index = kept; root[column] && index < of_column->count; index++) {
            int64_t at = of_column->parts[1][index];
            int64_t size = width[column] ? width[column] : of_column->parts[2][index];
            if (at >= there || at + size > there) continue;
            for (int part = 0; part < COLUMN_PARTS; part++)
                of_column->parts[part][kept] = of_column->parts[part][index];
            kept++;
        }
        of_column->count = kept;
    }
    for (int level = 0; level < levels; level++) of->levels[level].count = marks[columns + level];
}

PyObject *walk_bodies(PyObject *self, PyObject *args) {
    PyObject *o_data, *o_nodes, *o_start, *o_end, *o_cut, *o_behind, *o_room;
    int columns, levels, flexible;
    long long limit, part;
    if (!PyArg_ParseTuple(args, "OOiipLLOOOOO", &o_data, &o_nodes, &columns, &levels, &flexible,
                          &limit, &part, &o_start, &o_end, &o_cut, &o_behind, &o_room))
        return NULL;
    arrays all = {.count = 0, .failed = 0};
    bytes data = INPUT(o_data, uint8_t, 0);
    int64_t size = ITEMS(uint8_t);
    const node *nodes = (const node *)INPUT(o_nodes, int32_t, 0);
    int64_t nodes_count = ITEMS(int32_t) / NODE_INTS;
    const int64_t *start = INPUT(o_start, int64_t, 0);
    int64_t messages = ITEMS(int64_t);
    const int64_t *end = INPUT(o_end, int64_t, messages);
    const uint8_t *cut = INPUT(o_cut, uint8_t, messages);
    int64_t *behind = OUTPUT(o_behind, int64_t, messages);
    int64_t *room = OUTPUT(o_room, int64_t, 0);
    int64_t places = ITEMS(int64_t);
    if (!all.failed && part < 1) refuse(&all, "a part of less than one byte");
    if (!all.failed && (columns < 0 || levels < 0 || columns > MOST_COLUMNS ||
                        levels > MOST_COLUMNS - columns))
        refuse(&all, "a program of too many columns or levels");
    if (!all.failed && !is_inside(nodes, nodes_count, columns, levels))
        refuse(&all, "a program has an index outside of it");
    uint8_t *depth = all.failed ? NULL : calloc((size_t)nodes_count, 1);
    if (!all.failed && !depth) {
        PyErr_NoMemory();
        all.failed = 1;
    }
    if (!all.failed && !is_tree(nodes, nodes_count, depth))
        refuse(&all, "a program is not a tree, or has too many levels");
    free(depth);
    if (all.failed) {
        release(&all);
        return NULL;
    }
    int lists = columns + levels;
    list *found = calloc((size_t)lists + 1, sizeof(list));
    walker of = {data, nodes, flexible, !found, 0, found, found ? found + columns : NULL};
    int rows = COLUMN_PARTS * columns + LEVEL_PARTS * levels;
    int64_t each = rows ? places / rows : 0;
    for (int index = 0, row = 0; found && index < lists; index++) {
        found[index].room = each;
        for (int part = 0; part < (index < columns ? COLUMN_PARTS : LEVEL_PARTS); part++, row++)
            found[index].parts[part] = room + row * each;
    }
    Py_BEGIN_ALLOW_THREADS;
    int64_t marks[MOST_COLUMNS];
    int32_t width[MOST_COLUMNS] = {0};
    int8_t root[MOST_COLUMNS] = {0};
    for (int64_t index = 0; index < nodes_count; index++) {
        if (nodes[index].column < 0) continue;
        width[nodes[index].column] = nodes[index].kind == FIXED ? nodes[index].width : 0;
        root[nodes[index].column] = nodes[index].inside < 0;
    }
    for (int64_t row = 0; row < messages && !of.no_memory; row++) {
        if (row + AHEAD < messages && start[row + AHEAD] >= 0 && start[row + AHEAD] < size) {
            PREFETCH(data + start[row + AHEAD]);
            PREFETCH(data + start[row + AHEAD] + LINE);
        }
        behind[row] = -1;
        if (start[row] < 0 || end[row] > size || start[row] > end[row]) continue;
        for (int index = 0; index < lists; index++) marks[index] = found[index].count;
        of.elements = (end[row] - start[row]) / ELEMENT_SIZE;
        if (of.elements > MOST_ELEMENTS) of.elements = MOST_ELEMENTS;
        if (of.elements < LEAST_ELEMENTS) of.elements = LEAST_ELEMENTS;
        int64_t at = walk_struct(&of, nodes, row, start[row], end[row]);
        int64_t accepted = (at - start[row]) / part;
        if (accepted < limit) accepted = limit;
        if (at >= 0 && at <= end[row] && end[row] - at <= accepted)
            behind[row] = at;
        else
            mend(&of, marks, columns, levels, root, width, cut[row] ? end[row] : -1);
    }
    Py_END_ALLOW_THREADS;
    release(&all);
    PyObject *result = of.no_memory ? PyErr_NoMemory() : PyList_New(0);
    for (int index = 0; found && index < lists; index++) {
        for (int part = 0; part < (index < columns ? COLUMN_PARTS : LEVEL_PARTS); part++) {
            int64_t *items = found[index].parts[part], count = found[index].count;
            PyObject *of_part = NULL;
            if (result && found[index].is_own) {
                Py_ssize_t size = (Py_ssize_t)(count * sizeof(int64_t));
                of_part = PyBytes_FromStringAndSize((char *)items, size);
            } else if (result) {
                of_part = PyLong_FromLongLong(count);
            }
            if (result && (!of_part || PyList_Append(result, of_part))) Py_CLEAR(result);
            Py_XDECREF(of_part);
            if (found[index].is_own) free(items);
        }
    }
    free(found);
    return result;
}
