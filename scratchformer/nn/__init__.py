"""The model: every layer with its forward and its hand-written backward, and the proof that they agree."""
