"""What a reader does with the model besides training it: proofs, figures, diagnoses and experiments."""
