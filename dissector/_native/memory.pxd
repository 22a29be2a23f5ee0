cdef extern from *:
    """
    #if defined(__GNUC__)
    #define dissector_prefetch(place) __builtin_prefetch(place)
    #else
    #define dissector_prefetch(place) ((void)0)
    #endif
    """
    void prefetch "dissector_prefetch"(const void *place) noexcept nogil
