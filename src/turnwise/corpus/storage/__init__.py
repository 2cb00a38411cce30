"""The store: dialogues in Parquet files, written as a stream and read memory-mapped."""
