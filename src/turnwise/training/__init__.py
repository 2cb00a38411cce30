"""Training: recipes, and the one loop that fits any model to any objective."""
