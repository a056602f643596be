"""13_decoder_layer: a decoder layer from its parts (lesson 13).

x (B, T, D) are the states of the target, memory (B, S, D) is the output of the encoder. You are given the parts as
functions:

    self_attention(x)             -> (B, T, D), the causal mask is inside
    cross_attention(x, memory)    -> (B, T, D), queries from its first argument, keys and values from its second
    feed_forward(x)               -> (B, T, D)
    add_norm_1(x, update)         -> LayerNorm(x + update); add_norm_2 and add_norm_3 have a gamma and beta of their own

Return the output of the layer, as in Figure 1 of the paper.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def decoder_layer(x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2, add_norm_3):
    raise NotImplementedError
    return y


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
