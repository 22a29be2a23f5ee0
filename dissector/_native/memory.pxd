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
