"""Reporting: results as a page, as Markdown and as LaTeX, and two of them side by side."""
