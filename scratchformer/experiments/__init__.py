"""The cost of a training, evaluation, ablations, head statistics, figures and the demo."""
