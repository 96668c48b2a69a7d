import {createHash} from 'node:crypto'
import {copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {runProcess} from '../run-process.ts'

/** A virtual environment of Python, kept between runs as long as nothing it is made of changes. */
export interface Environment {
  name: string
  /** As pip takes them; the version of every tool and of its DuckDB is fixed. */
  requirements: readonly string[]
  /** The Meltano project beside this file that is installed into it. */
  project?: string
}

const DUCKDB = 'duckdb==1.5.6'

export const BY_HAND: Environment = {
  name: 'by-hand',
  requirements: ['requests==2.34.2', 'pyarrow==26.0.1', DUCKDB],
}

export const DLT: Environment = {
  name: 'dlt',
  requirements: ['dlt[duckdb]==1.31.0', 'requests==2.34.2', 'pandas==3.1.1', 'pyarrow==26.0.1', DUCKDB],
}

/** PyAirbyte asks for this very DuckDB. */
export const AIRBYTE: Environment = {name: 'airbyte', requirements: ['airbyte==0.71.3', 'duckdb==1.4.3']}

/** Tap and target, and their DuckDB, are fixed in the project. */
export const MELTANO: Environment = {
  name: 'meltano',
  requirements: ['meltano==4.4.1'],
  project: 'meltano.yml',
}

const CACHE = join(tmpdir(), 'loantape-peers')

/**
 * Makes an environment where it is missing.
 *
 * @returns its folder; a project is in `project` below it
 * @throws Error when a part of it cannot be installed
 */
export function installEnvironment({name, requirements, project}: Environment): string {
  const source = project && join(import.meta.dirname, project)
  const parts = [...requirements, source ? readFileSync(source, 'utf8') : '']
  const folder = join(
    CACHE,
    `${name}-${createHash('sha256').update(parts.join('\n')).digest('hex').slice(0, 12)}`,
  )
  const mark = join(folder, 'installed')
  if (existsSync(mark)) return folder

  rmSync(folder, {recursive: true, force: true})
  mkdirSync(CACHE, {recursive: true, mode: 0o700})
  runProcess(['python3', '-m', 'venv', folder])
  const pip = [binaryOf(folder, 'pip'), '--disable-pip-version-check']
  runProcess([...pip, 'install', '--quiet', ...requirements])
  if (source) installProject(folder, source)
  writeFileSync(mark, '')
  return folder
}

/** A program of an environment. */
export function binaryOf(folder: string, name: string): string {
  return join(folder, 'bin', name)
}

function installProject(folder: string, source: string): void {
  const cwd = join(folder, 'project')
  mkdirSync(cwd)
  copyFileSync(source, join(cwd, 'meltano.yml'))
  runProcess([binaryOf(folder, 'meltano'), 'install'], {cwd})
}
