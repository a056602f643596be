"""How a model learns: the loop, what it leaves on disk, and how it goes on after a stop."""
