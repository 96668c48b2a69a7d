import {availableParallelism} from 'node:os'
import {join} from 'node:path'
import {NODE} from '../run-process.ts'
import {envOf} from '../set-up.ts'
import {AIRBYTE, BY_HAND, binaryOf, DLT, type Environment, MELTANO} from './environments.ts'

/** What a tool gets for its loads. */
export interface Place {
  /** Address of the page server. */
  url: string
  /** A folder for this tool, shared by its loads. */
  folder: string
  /** The DuckDB file to write. */
  database: string
  /** Its virtual environment; `''` without one. */
  environment: string
}

/** Where a tool's result is: the database file, and what queries put after `from`. */
interface Result {
  database?: (place: Place) => string
  current: string
  /** All versions, if the tool keeps a history. */
  versions?: string
}

/** One way to load the deals. */
export interface Tool {
  name: string
  environment?: Environment
  command(place: Place): string[]
  settings?: (place: Place) => Record<string, string>
  cwd?: (place: Place) => string
  /** Undefined if the tool stores nothing. */
  result?: Result
}

const python = (script: string, ...more: string[]) => ({
  command: ({url, database, environment}: Place) => [
    binaryOf(environment, 'python'),
    join(import.meta.dirname, script),
    url,
    database,
    ...more,
  ],
})

const DLT_RESULT: Result = {current: 'peers.deals where _dlt_valid_to is null', versions: 'peers.deals'}

/**
 * Settings that dlt's page on performance recommends: larger buffers, more than one file, one worker per core. The script also
 * loads Parquet.
 */
const DLT_TUNED = {
  DATA_WRITER__BUFFER_MAX_ITEMS: '25000',
  DATA_WRITER__FILE_MAX_ITEMS: '25000',
  NORMALIZE__WORKERS: String(availableParallelism()),
}

const ROOT = join(import.meta.dirname, '../../..')

export const LOANTAPE: Tool = {
  name: '`loantape sync`',
  command: () => [...NODE, join(ROOT, 'bin/loantape.js'), 'sync'],
  settings: ({url, folder}) => envOf(url, join(folder, 'data')),
  result: {
    database: ({folder}) => join(folder, 'data/current/portfolio.duckdb'),
    current: 'core.deal',
    versions: 'core.deal_history',
  },
}

/** The tools, in the order of the table. */
export const TOOLS: readonly Tool[] = [
  {
    name: 'bare loop',
    command: ({url}) => [...NODE, join(ROOT, 'scripts/bench/bare-loop.ts'), url],
  },
  {
    name: 'script by hand',
    environment: BY_HAND,
    ...python('by_hand.py'),
    result: {current: 'deals where valid_to is null', versions: 'deals'},
  },
  {
    name: 'dlt `rest_api`',
    environment: DLT,
    ...python('dlt_rest.py', 'default'),
    result: DLT_RESULT,
  },
  {
    name: 'dlt `rest_api`, tuned',
    environment: DLT,
    ...python('dlt_rest.py', 'tuned'),
    settings: () => DLT_TUNED,
    result: DLT_RESULT,
  },
  {
    name: 'dlt, Arrow tables',
    environment: DLT,
    ...python('dlt_arrow.py'),
    result: DLT_RESULT,
  },
  {
    name: 'PyAirbyte',
    environment: AIRBYTE,
    ...python('airbyte_cache.py'),
    settings: ({folder}) => ({AIRBYTE_LOGGING_ROOT: folder}),
    result: {current: 'peers.deals'},
  },
  {
    name: 'Meltano',
    environment: MELTANO,
    command: ({environment}) => [
      binaryOf(environment, 'meltano'),
      'run',
      '--force',
      'tap-rest-api-msdk',
      'target-duckdb',
    ],
    settings: ({url, database}) => ({PEERS_URL: url, PEERS_DATABASE: database}),
    cwd: ({environment}) => join(environment, 'project'),
    result: {current: 'peers.deals'},
  },
  LOANTAPE,
]
