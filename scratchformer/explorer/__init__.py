"""The explorer: one HTML page in which a browser runs a trained model, with its real weights."""
