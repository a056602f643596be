"""06_masks: which query may use which key (lesson 06).

T queries stand at the last T of S positions, so the last query stands at the last key. Return an array of bool, True
where the query may use the key: (B, 1, T, S), or (1, 1, T, S) if there are no key_lengths; the axis of 1 is for the
heads.

    key_lengths   (B,) int: sentence b has key_lengths[b] words, then padding; or None: no padding
    causal        True: a query may use its own position and those before it
"""

import numpy as np

from scratchformer.commands.learn import check_file


def may_attend(T, S, key_lengths, causal):
    raise NotImplementedError
    return mask


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
