"""One file a task: its data, its batches, its score and its evaluation."""
