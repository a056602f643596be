"""Whatever has a forward and a backward, written by hand."""

import scratchformer.nn.fast_ops  # noqa: F401  so that float32 arrays find their operations
