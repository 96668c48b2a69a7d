import {createHash} from 'node:crypto'
import {copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {runProcess} from '../run-process.ts'

/** A Python virtual environment, kept between runs until its requirements or project change. */
export interface Environment {
  name: string
  /** Requirements in pip's syntax, with fixed versions. */
  requirements: readonly string[]
  /** The Meltano project file beside this module to install into it. */
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

/** PyAirbyte requires exactly this version of DuckDB. */
export const AIRBYTE: Environment = {name: 'airbyte', requirements: ['airbyte==0.71.3', 'duckdb==1.4.3']}

/** The project fixes the versions of tap, target and their DuckDB. */
export const MELTANO: Environment = {
  name: 'meltano',
  requirements: ['meltano==4.4.1'],
  project: 'meltano.yml',
}

const CACHE = join(tmpdir(), 'loantape-peers')

/**
 * Creates an environment unless it exists.
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

/** Returns the path of a program in an environment. */
export function binaryOf(folder: string, name: string): string {
  return join(folder, 'bin', name)
}

function installProject(folder: string, source: string): void {
  const cwd = join(folder, 'project')
  mkdirSync(cwd)
  copyFileSync(source, join(cwd, 'meltano.yml'))
  runProcess([binaryOf(folder, 'meltano'), 'install'], {cwd})
}
