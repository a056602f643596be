"""`scratchformer doctor`: why does it not learn? Examines code, configuration, text and machine, from the ground up."""
