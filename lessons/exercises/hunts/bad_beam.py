"""bad_beam: repair a beam search that finds worse translations, the larger the beam is (lesson 20).

Its translations are too short, and with a beam of 4 hardly one is right. Find the three bugs.
"""

import numpy as np
from transformer import BOS, EOS, PAD, decode, encode, log_softmax


def beam_search(source, model, beam=4, alpha=0.6, longer=50):
    memory, _ = encode(source, model, 0.0)
    penalty = ((5 + np.arange(source.size + longer + 1)) / 6) ** alpha
    alive, finished = [(0.0, [BOS])], []
    for n_words in range(1, len(penalty)):
        log_p_so_far, so_far = zip(*alive)
        x, _ = decode(np.array(so_far), memory.repeat(len(alive), axis=0), source, model, 0.0)
        log_p = log_softmax(x[:, -1] @ model.E.data.T)
        log_p[:, [PAD, BOS]] = -np.inf
        best, V = np.argsort(-log_p, axis=None)[: 2 * beam], log_p.shape[1]
        continued = [(log_p.flat[i], [*so_far[i // V], i % V]) for i in best.tolist()]
        finished += [(p * penalty[n_words], ids) for p, ids in continued if ids[-1] == EOS]
        alive = [(p, ids) for p, ids in continued if ids[-1] != EOS][:beam]
        if finished:
            break
    return [i for i in max(finished or alive)[1] if i not in (BOS, EOS)]
