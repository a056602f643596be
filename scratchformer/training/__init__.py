"""The training loop, run directories and checkpoints."""
