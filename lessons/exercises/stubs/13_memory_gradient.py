"""13_memory_gradient: back through a stack of decoder layers (lesson 13).

Forward was x = layer(x, memory) for each layer, from the first to the last; the last x is y (B, T, D). `back` is a
tuple with a function for each layer, the first layer's first. It takes the gradient of that layer's output and returns
two arrays:

    back[n](gradient of the output of layer n)  ->  gradient of its input (B, T, D), its share for the memory (B, S, D)

Given dy = dL/dy, return the gradients of the memory and of the x that the first layer read.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def decoder_backward(dy, back):
    raise NotImplementedError
    return {"dmemory": dmemory, "dx": dx}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
