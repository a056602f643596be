"""The progress bar `tqdm`, for a terminal or a notebook; a notebook without ipywidgets gets lines instead."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # tqdm's, that its bar for notebooks is experimental, or that ipywidgets is missing
    from tqdm.autonotebook import tqdm as tqdm  # noqa: F401
