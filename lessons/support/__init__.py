"""Parts that the lessons build and use beside the model."""
