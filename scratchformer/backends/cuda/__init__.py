"""The operations of `nn` on an NVIDIA GPU: CUDA kernels, matrix products by cuBLAS, and the choice of a device."""
