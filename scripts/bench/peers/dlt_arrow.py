"""dlt with a plain generator of Arrow tables and the scd2 merge by a row hash: its fastest way in."""

import sys
from pathlib import Path

import dlt
import pyarrow
from dlt.sources.helpers.transform import add_row_hash_to_table
from pages import walk

ROWS_PER_TABLE = 10_000
ROW_HASH = "row_hash"

url, database = sys.argv[1:]


@dlt.resource(
    name="deals",
    write_disposition={
        "disposition": "merge",
        "strategy": "scd2",
        "row_version_column_name": ROW_HASH,
    },
)
def deals():
    """The deals as tables of some pages each."""
    rows = []
    for page in walk(url):
        rows += page
        if len(rows) >= ROWS_PER_TABLE:
            yield pyarrow.Table.from_pylist(rows)
            rows = []
    if rows:
        yield pyarrow.Table.from_pylist(rows)


pipeline = dlt.pipeline(
    "peers",
    pipelines_dir=str(Path(database).parent / "pipelines"),
    destination=dlt.destinations.duckdb(database),
    dataset_name="peers",
)
pipeline.run(deals().add_map(add_row_hash_to_table(ROW_HASH)))
