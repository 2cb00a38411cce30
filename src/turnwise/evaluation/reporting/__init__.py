"""Reports of results: Markdown, an HTML page, and paired comparisons."""
