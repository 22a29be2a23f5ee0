/* The module dissector.kernel.loops. */

#include "loops.h"

#define ENTRY(name) {#name, name, METH_VARARGS, NULL}

static PyMethodDef methods[] = {
    ENTRY(walk_records), ENTRY(read_fields), ENTRY(read_headers),
    ENTRY(make_views), ENTRY(follow), ENTRY(advance),
    ENTRY(read_tcp), ENTRY(find_pairs), ENTRY(read_numbers),
    ENTRY(copy_ranges), ENTRY(hash_words), ENTRY(number_words), ENTRY(locate),
    ENTRY(walk_frames), ENTRY(walk_bodies),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "loops", NULL, 0, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_loops(void) { return PyModuleDef_Init(&module); }
