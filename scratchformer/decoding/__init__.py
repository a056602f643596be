"""From a trained model to translations."""
