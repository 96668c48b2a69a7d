import {DuckDBInstance} from '@duckdb/node-api'

const {create} = DuckDBInstance
/** A few rows are read in less time than threads are woken to read them. */
DuckDBInstance.create = (path, config) => create.call(DuckDBInstance, path, {threads: '1', ...config})
