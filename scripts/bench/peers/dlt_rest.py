"""dlt with its `rest_api` source and the scd2 merge; `tuned` has its performance settings in the environment."""

import sys
from pathlib import Path

import dlt
from dlt.sources.rest_api import rest_api_source

url, database, mode = sys.argv[1:]

source = rest_api_source(
    {
        "client": {
            "base_url": f"{url}/v1/",
            "paginator": {"type": "cursor", "cursor_path": "next_cursor", "cursor_param": "cursor"},
        },
        "resources": [
            {
                "name": "deals",
                "endpoint": {"path": "deals", "params": {"limit": 100}, "data_selector": "data"},
                "write_disposition": {"disposition": "merge", "strategy": "scd2"},
            }
        ],
    },
    parallelized=mode == "tuned",
)
pipeline = dlt.pipeline(
    "peers",
    pipelines_dir=str(Path(database).parent / "pipelines"),
    destination=dlt.destinations.duckdb(database),
    dataset_name="peers",
)
pipeline.run(source, loader_file_format="parquet" if mode == "tuned" else None)
