"""Private: everything that numba compiles. Kernels take integers, arrays of encodings and literal strings."""
