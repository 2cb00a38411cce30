"""The sweeps that come with turnwise: a recipe each, and what of it is changed."""
