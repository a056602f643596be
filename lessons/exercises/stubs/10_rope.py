"""10_rope: turn queries or keys by their positions (lesson 10).

x (B, T, H, K) holds a vector of K channels for each of T words and each head; word t stands at positions[t]. Channels
2i and 2i + 1 are a point in a plane. Turn it by the angle

    p 10000^(-2i / K)        p: the word's position; i = 0 ... K/2 - 1

so that at p = 1 the pair i = 0 turns from (1, 0) to (cos 1, sin 1). Return the turned vectors, (B, T, H, K). Leave x as
it was.

    positions   (T,) int; they need not begin at 0
"""

import numpy as np

from scratchformer.commands.learn import check_file


def turn(x, positions):
    raise NotImplementedError
    return turned


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
