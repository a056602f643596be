"""Which failures of `first_symbol.py` are only slow? The same readers at the same lengths, trained for longer.

    python benchmarks/first_symbol_longer.py [--quick] [--out DIR]

README.md here says what is recorded.
"""

from __future__ import annotations

from first_symbol import SEEDS, row
from provenance import surroundings
from small_training import arguments_of, write
from threadpoolctl import threadpool_limits

from library.recall import BATCH, LONGEST_GRADIENT, SYMBOLS

CASES = (
    ("RNN", 32, False, 1000, (0.003, 0.01)),
    ("LSTM, forget bias 1", 32, False, 1000, (0.003, 0.01)),
    ("LSTM, forget bias 5", 64, False, 1000, (0.003, 0.01)),
    ("RNN, W_h x 0.8", 32, False, 1000, (0.003, 0.01)),
    ("RNN, W_h x 0.8", 64, True, 1000, (0.003, 0.01)),
    ("RNN", 64, False, 1000, (0.003, 0.01)),
    ("LSTM, forget bias 1", 32, False, 3000, (0.01,)),
)
"""Reader, length, whether blank, steps, learning rates."""


def main() -> None:
    arguments = arguments_of(__doc__.split("\n")[0])
    seeds, fewer = (SEEDS[:1], 2) if arguments.quick else (SEEDS, None)
    config = {"symbols": SYMBOLS, "batch": BATCH, "longest_gradient": LONGEST_GRADIENT}
    with threadpool_limits(1):
        provenance = surroundings()  # now: git may move while we measure
        rows = [
            row(reader, n, blank, rates, seeds, fewer or steps) | {"steps": steps}
            for reader, n, blank, steps, rates in CASES
        ]
    result = {"provenance": provenance, "config": config, "seeds": seeds, "results": rows}
    write(arguments.out, "first_symbol_longer", result)


if __name__ == "__main__":
    main()
