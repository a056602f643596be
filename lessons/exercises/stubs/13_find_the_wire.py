"""13_find_the_wire: which wire of a model is cut? (lesson 13)

logits is a whole model as a function: source_ids (B, S), target_in_ids (B, T) -> logits (B, T, 11). Ids are integers
from 1 to 10, and 0 for padding, at the end. At most one wire of the model is cut. Return its name:

    "memory"             the decoder does not read the memory
    "decoder attention"  the decoder has no self-attention: it reads the last word it has written and none before
    "causal mask"        the decoder's self-attention sees later words, too
    "source positions"   nothing tells the encoder where a word stands
    "target positions"   nothing is added to the decoder's words to tell where they stand
    "padding mask"       padding of the source is attended to
    "none"               nothing is cut

Your function is tried on all of them, with other weights each time, post-LN and pre-LN.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def which_wire(logits):
    raise NotImplementedError
    return name


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
