"""dlt with a plain generator of Arrow tables and the scd2 merge by a row hash: its fastest way in."""

import sys
from pathlib import Path

import dlt
import pyarrow
import requests
from dlt.sources.helpers.transform import add_row_hash_to_table

ROWS_PER_TABLE = 10_000
ROW_HASH = "row_hash"

url, database = sys.argv[1:]


def walk():
    """The rows of all pages, one after the other."""
    cursor = None
    with requests.Session() as session:
        while True:
            params = {"limit": 100} if cursor is None else {"limit": 100, "cursor": cursor}
            response = session.get(f"{url}/v1/deals", params=params, timeout=30)
            response.raise_for_status()
            page = response.json()
            yield page["data"]
            cursor = page["next_cursor"]
            if cursor is None:
                return


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
    for page in walk():
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
