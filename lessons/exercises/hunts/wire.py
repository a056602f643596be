"""wire: tell from its outputs what is missing in a model (lesson 13).

logits is a whole model as a function: source (b, s), target (b, t) -> logits (b, t, 11). Ids are integers from 3 to 10,
and 0 for padding, at the end of a row. At most one thing is missing. Return its name:

    "memory"             the decoder does not read the memory
    "decoder attention"  each position of the target sees its own word and none before
    "causal mask"        positions of the target see later words, too
    "source positions"   no positional encoding in the encoder
    "target positions"   no positional encoding in the decoder
    "padding mask"       padding of the source is seen
    "none"               nothing is missing
"""

import numpy as np


def which_wire(logits):
    # a first try
    y = logits(np.array([[3, 4, 5, 6]]), np.array([[3, 7, 8]]))
    return "none" if np.isfinite(y).all() else "memory"
