"""What the models do for people."""
