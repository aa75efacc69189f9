"""The arithmetic: formats, rounding, operations, and the kernels under them."""
