"""PyAirbyte with a declarative source, into its DuckDB cache: the latest state of each deal."""

import sys
from pathlib import Path

import airbyte
from airbyte.caches import DuckDBCache

url, database = sys.argv[1:]

source = airbyte.get_source(
    "source-deals",
    config={"url": url},
    source_manifest=Path(__file__).parent / "airbyte_manifest.yaml",
)
source.select_all_streams()
cache = DuckDBCache(db_path=database, schema_name="peers", cache_dir=Path(database).parent / "cache")
source.read(cache=cache)
