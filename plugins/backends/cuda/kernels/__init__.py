"""The kernels of the cuda backend, one idea a file."""
