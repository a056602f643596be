"""What each subcommand of `scratchformer` does: a function of its parsed arguments -> its exit code, or None for 0."""
