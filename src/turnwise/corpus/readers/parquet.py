"""Reading the rows of Parquet files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from turnwise.core.files import sha256
from turnwise.corpus.source.corpus_source import CorpusSource


def read_parquet(
    source: CorpusSource, path: Path, select: Callable[[list[str]], list[str]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a file with their numbers; `select` gets the names of all columns and returns those to read."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    source.record_input(path, path.stat().st_size, sha256(path))
    try:
        with pq.ParquetFile(path) as parquet:
            columns = select(parquet.schema_arrow.names)
            batches = parquet.iter_batches(batch_size=8192, columns=columns)
            yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        source.reject(path, None, "file", f"not a complete Parquet file: {error}")
