"""08_tied_gradient: one matrix, used three times (lesson 08).

    x_source = sqrt(D) E[source_ids]          (B, S, D), and 0 for padding, the id 0
    x_target = sqrt(D) E[target_ids]          (B, T, D), likewise
    y        = x_target + the sum of x_source over its S places
    z        = y E^T                          (B, T, V), the scores

Given dz = dL/dz, and y, E and the ids, return dy = dL/dy (B, T, D), without what E does elsewhere, and dE = dL/dE
(V, D), with all that E does.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def tied_gradient(dz, y, E, source_ids, target_ids):
    raise NotImplementedError
    return {"dy": dy, "dE": dE}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
