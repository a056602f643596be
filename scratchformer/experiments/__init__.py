"""Plans, evaluation, reports, ablations, head statistics, figures and the demo."""
