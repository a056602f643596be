"""What the lessons build and use beside the model."""
