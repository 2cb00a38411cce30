"""Objectives: one paper's idea a file. Which texts of a dialogue, which heads, which loss."""
