// No kernel of ours has complex numbers, and the real header needs CUDA.
