"""The script one would write: walk the pages, put the rows into DuckDB, close and open versions by SQL."""

import sys

import duckdb
import pyarrow
from pages import walk

url, database = sys.argv[1:]

rows = [row for page in walk(url) for row in page]
loaded = pyarrow.Table.from_pylist(rows)
columns = [name for name in loaded.column_names if name != "id"]
is_same = " and ".join(f"old.{name} is not distinct from new.{name}" for name in columns)

with duckdb.connect(database) as db:
    db.execute("""
        create table if not exists deals as
        select *, now() as valid_from, cast(null as timestamptz) as valid_to from loaded limit 0""")
    db.execute("begin")
    db.execute(f"""
        update deals as old set valid_to = now()
        where valid_to is null
          and not exists (from loaded as new where new.id = old.id and {is_same})""")
    db.execute("""
        insert into deals by name
        select new.*, now() as valid_from from loaded as new
        where not exists (from deals as old where old.id = new.id and old.valid_to is null)""")
    db.execute("commit")
