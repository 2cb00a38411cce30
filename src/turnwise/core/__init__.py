"""What every package shares: dialogues, errors, files, progress, pages, charts; imports no other part of turnwise."""
