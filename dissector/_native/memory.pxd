# Types of numbers and arrays. Loops read the arrays, and write those with `Out`.
ctypedef long long Int
ctypedef unsigned long long Word
ctypedef const unsigned char[::1] Bytes
ctypedef unsigned char[::1] BytesOut
ctypedef const signed char[::1] Versions
ctypedef const unsigned short[::1] Ports
ctypedef unsigned short[::1] PortsOut
ctypedef const int[::1] Ints32
ctypedef int[::1] Ints32Out
ctypedef const unsigned int[::1] Words32
ctypedef unsigned int[::1] Words32Out
ctypedef const long long[::1] Ints
ctypedef long long[::1] IntsOut
ctypedef const unsigned long long[::1] Words
ctypedef unsigned long long[::1] WordsOut

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define dissector_prefetch(place) __builtin_prefetch(place)
    #else
    #define dissector_prefetch(place) ((void)0)
    #endif
    """
    void prefetch "dissector_prefetch"(const void *place) noexcept nogil


cdef inline void touch(const unsigned char[::1] data, long long position) noexcept nogil:
    if 0 <= position < data.shape[0]:
        prefetch(&data[position])
