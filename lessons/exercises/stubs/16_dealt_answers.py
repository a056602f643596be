"""16_dealt_answers: the loss of a model whose answers are dealt out at random (lesson 16).

A new model guesses n symbols, with logits (n, V). It cannot know the answers, so suppose that they are dealt out:
symbol v is the answer with probability share[v], whatever the model read. Return the loss that is to be expected, in
nats per symbol: one number. A first loss far from it is a symptom.

    loss of one guess = -log softmax(logits)[answer]
"""

import numpy as np

from scratchformer.commands.learn import check_file


def dealt_loss(logits, share):
    raise NotImplementedError
    return loss


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
