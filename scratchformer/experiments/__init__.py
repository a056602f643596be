"""The cost of a training, evaluation, head statistics, figures and the demo."""
