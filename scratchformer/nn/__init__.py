"""Whatever has a forward and a backward, written by hand."""
