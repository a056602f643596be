"""disguise: other gradients, the same steps (lesson 15).

gradients (t, n): row t holds the gradients of n weights at step t. Return other gradients (t, n), every one of them
changed by one per cent or more, after which `adam` takes the same steps, to 1e-5. Leave gradients as they were.
"""

import numpy as np


def disguise(gradients):
    # a first try
    return np.sign(gradients)
