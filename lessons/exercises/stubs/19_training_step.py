"""19_training_step: several steps of training, from the gradients on (lesson 19).

grads[t, i] is the gradient of the *sum* of the losses of micro-batch i of a step, which has n_tokens[t, i] target
tokens. Return the weights after all steps. Each step follows the gradient of the mean loss per token, at the learning
rate of the paper (section 5.3), with Adam:

    m <- beta1 m + (1 - beta1) g          beta1 = 0.9
    v <- beta2 v + (1 - beta2) g^2        beta2 = 0.98
    w <- w - rate sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + 1e-9)        t = 1, 2, ...

m and v begin at 0. (Here the gradients are given, so they do not depend on w.)

    w               (P,) the weights before the first step
    grads           (steps, micro-batches, P)
    n_tokens        (steps, micro-batches) int
    d_model, warmup for the learning rate
"""

import numpy as np

from scratchformer.commands.learn import check_file


def train(w, grads, n_tokens, d_model, warmup):
    raise NotImplementedError
    return w_after


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
