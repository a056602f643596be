"""The operations of `nn/ops.py`, faster: on the CPU, and on NVIDIA GPUs."""
