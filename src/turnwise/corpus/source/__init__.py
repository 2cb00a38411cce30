"""What a reader works with: the files of a corpus, read by format, and a record of what was read and rejected."""
