import {execFileSync, spawn} from 'node:child_process'
import {cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {fileURLToPath} from 'node:url'
import {realClock} from '../../src/core/clock.ts'
import {type Config, parseConfig, requireSource} from '../../src/core/config.ts'
import type {Failure} from '../../src/core/errors.ts'
import type {Fixed} from '../../src/core/settings.ts'
import type {World} from '../../src/core/types.ts'
import {type SyncRequest, type SyncResult, syncDeals, walkAndApply} from '../../src/pipeline.ts'
import {bringUpToDate} from '../../src/record/bring-up-to-date.ts'
import type {StoredDeal} from '../../src/service/deals.ts'
import type {ServiceOptions} from '../../src/service/server.ts'
import {dataFolderAt, requireWritable} from '../../src/store/data-folder.ts'
import {findCurrentRelease, openRelease, requireRelease} from '../../src/store/release.ts'
import {withRun} from '../../src/store/runs.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {openHistory} from '../../src/store/warehouse.ts'
import {runCommand} from './command.ts'
import {anyRow, createWorld, envOf, LEAST_TABLES} from './data.ts'
import {startSpoiltService} from './spoilt-service.ts'
import {COMPILE_CACHE} from './temporary.ts'
import {until} from './until.ts'

const API_KEY = 'sk_test_lab'

/** Returns an instant of February 2026 in New York, ISO 8601; nights begin at 23:30. */
export const day = (number: number, time = '23:30'): string =>
  `2026-02-${String(number).padStart(2, '0')}T${time}:00-05:00`

/** Four consecutive nights. */
export const DAY_1: string = day(2)
export const DAY_2: string = day(3)
export const DAY_3: string = day(4)
export const DAY_4: string = day(5)

/** Gives up a failing source soon; all other limits are too long to end a test on a slow machine. */
const PATIENT = {
  retries: 2,
  requestTimeoutSeconds: 600,
  pageTimeoutSeconds: 1800,
  questionTimeoutSeconds: 1800,
  historyTimeoutSeconds: 1800,
}

/** The program's entry, for tests that start it as a process. */
export const MAIN: string = join(import.meta.dirname, '../../bin/loantape.js')

/** A module that kills the program it is loaded before. */
export const KILL_AT: string = fileURLToPath(new URL('./kill-at.ts', import.meta.url))

/** A row of a query's result, values as DuckDB prints them: counts and decimals are text. */
export type Row = Record<string, unknown>

export interface Ended {
  code: number | null
  signal: NodeJS.Signals | null
  stdout: string
  stderr: string
}

/** A running process; disposing it kills it. */
export type Started = ReturnType<typeof startProcess>

/** A sync request, with whatever differs from the lab's config and world. */
type NightRequest = SyncRequest & {config?: Partial<Config>; signal?: AbortSignal; world?: Partial<World>}

/** A local service and a data folder; disposing it ends the service and removes the folder. */
export type Lab = Awaited<ReturnType<typeof createLab>>

/** How a lab is set up. */
export interface LabOptions extends Partial<ServiceOptions> {
  /** The tables of releases made in this process, as `--select` names them; `LEAST_TABLES` by default, or `all`. */
  tables?: string
  deals?: StoredDeal[]
  /** When to sync them (ISO 8601); not at all by default. */
  releasedAt?: string
}

export async function createLab({
  tables = LEAST_TABLES,
  deals = [],
  releasedAt,
  ...options
}: LabOptions = {}) {
  const limited = tables === 'all' ? {} : {select: tables}
  const root = mkdtempSync(join(tmpdir(), 'loantape-'))
  const folder = dataFolderAt(join(root, 'data'))
  const service = await startSpoiltService({apiKeys: [API_KEY], clock: realClock, ...options})
  service.store.insert(deals)
  const keyFile = join(root, 'tape.key')
  const env: Record<string, string> = {
    ...envOf(service.url, folder.root),
    LOANTAPE_API_KEY: API_KEY,
    LOANTAPE_TAPE_KEY_FILE: keyFile,
  }
  const config: Config = {...parseConfig(env, {readFile: () => ''}), ...PATIENT}
  const createLabWorld = (now?: string): World => ({...createWorld(now), ...limited})
  const prepare = async (
    now: string,
    {config: changes, signal, world: given, ...request}: NightRequest = {},
  ) => {
    const world = {...createLabWorld(now), ...(signal && {signal}), ...given}
    await bringUpToDate({...config, ...changes}, world)
    return {config: {...config, ...changes}, request, world}
  }
  const beside = new AsyncDisposableStack()
  const started: Started[] = []
  const start = (args: readonly string[], changes?: Record<string, string>) => {
    const one = startProcess([process.execPath, MAIN, ...args], {...env, ...changes}, root)
    started.push(one)
    return one
  }
  const copyFolder = (name: string) => {
    const copy = dataFolderAt(join(root, name))
    // Another process must copy: closing a SQLite file drops this process's own locks on it.
    execFileSync('cp', ['-RP', `${folder.root}/.`, copy.root])
    return copy
  }
  const lab = {
    service,
    folder,
    config,
    /** Disposed with the lab, before it. */
    beside,
    /** The environment of a process that reads this service into this folder. */
    env,
    createWorld: createLabWorld,
    start,
    /** Syncs in this process, with the business clock fixed at `now` (ISO 8601). */
    async sync(now: string, given?: NightRequest): Promise<SyncResult> {
      const {config: own, request, world} = await prepare(now, given)
      return syncDeals(own, request, world)
    },
    /** Walks in this process, with the business clock fixed at `now` (ISO 8601). */
    async walk(now: string, given?: NightRequest): ReturnType<typeof walkAndApply> {
      const {config: own, request, world} = await prepare(now, given)
      return walkOnce(own, request, world)
    },
    /** Runs SQL over a release, by default the current one. */
    async query(sql: string, releaseId?: string): Promise<Row[]> {
      await using db = await openRelease(requireRelease(folder, releaseId))
      return await db.all(anyRow, sql)
    },
    /** Runs SQL over the warehouse, with tables named `raw.…`. */
    async queryHistory(sql: string): Promise<Row[]> {
      await using db = await openHistory(folder, createLabWorld())
      await db.run('use history.raw')
      return await db.all(anyRow, sql)
    },
    currentReleaseId: () => findCurrentRelease(folder)?.manifest.release_id,
    run: (args: readonly string[], changes?: Record<string, string>, fixed?: Partial<Fixed>) =>
      runCommand(args, {...env, ...changes}, {...limited, fixed: {...PATIENT, ...fixed}}),
    copyFolder,
    /** Makes the existing tapes this many days older. */
    ageTapes(days: number) {
      using stateDb = openStateDb(folder.stateDb)
      stateDb.run(`update tape set ended_at = strftime('%Y-%m-%dT%H:%M:%fZ', ended_at, ?)`, [`-${days} days`])
    },
    /** Saves folder, tape key and service. The returned function restores them and clears the faults. */
    remember() {
      requireWritable(folder)
      const kept = copyFolder('remembered')
      const key = existsSync(keyFile) ? readFileSync(keyFile) : undefined
      const restoreService = service.remember()
      return () => {
        restoreService()
        rmSync(folder.root, {recursive: true, force: true})
        cpSync(kept.root, folder.root, {recursive: true, verbatimSymlinks: true})
        if (key) writeFileSync(keyFile, key, {mode: 0o600})
        else rmSync(keyFile, {force: true})
      }
    },
    async [Symbol.asyncDispose]() {
      await beside.disposeAsync()
      for (const one of started) one[Symbol.dispose]()
      await Promise.allSettled(started.map(({ended}) => ended))
      await service.close()
      rmSync(root, {recursive: true, force: true})
    },
  }
  if (releasedAt !== undefined) await lab.sync(releasedAt)
  return lab
}

/** Syncs without a release: the night is in history, and the next sync or build releases it. */
export function walkOnce(
  config: Config,
  request: SyncRequest,
  world: World,
): ReturnType<typeof walkAndApply> {
  const source = requireSource(config)
  const folder = requireWritable(dataFolderAt(config.dataDir))
  return withRun(folder.stateDb, 'sync', world, async (run) => {
    const walked = await walkAndApply(folder, source, request, run)
    return {outcome: 'walked', ...walked}
  })
}

/** Creates a lab with 1,000 deals after two nights; one deal changed before the second, which was released. */
export async function createSeenLab(options: LabOptions = {}): Promise<Lab> {
  const lab = await createLab({...options, deals: someDeals(1000)})
  const config = {detail: 'off'} as const
  await lab.walk(DAY_1, {config})
  lab.service.store.update('deal_000001', {status: 'underwriting'})
  await lab.sync(DAY_2, {config})
  return lab
}

export function runProgram(
  args: readonly string[],
  env: Record<string, string>,
  cwd: string = tmpdir(),
): Promise<Ended> {
  return startProcess([process.execPath, MAIN, ...args], env, cwd).ended
}

/** Runs the program in a separate process that kills itself before its nth change to a file. */
export const runKilledAt = (
  nth: number,
  args: readonly string[],
  env: Record<string, string>,
): Promise<Ended> =>
  startProcess([process.execPath, '--import', KILL_AT, MAIN, ...args], {...env, KILL_AT: String(nth)}).ended

/** Waits until a started server listens. @returns the address of its web side */
export const untilListens = ({printed}: Started): Promise<string> =>
  until(() => /"url":"(http:[^"]+)","msg":"web side listens"/.exec(printed().stderr)?.[1])

export const untilPrinted = async ({printed}: Started) =>
  JSON.parse(await until(() => printed().stdout.endsWith('\n') && printed().stdout))

export async function stopProcess({process, ended}: Started): Promise<number | null> {
  process.kill('SIGTERM')
  return (await ended).code
}

/** The clock `faketime` gave this process, if any: its children keep it. */
const GIVEN_CLOCK = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => /^(FAKETIME|LD_PRELOAD)/.test(name)),
)

/** Starts a process, with no settings besides `env`. */
export function startProcess(
  [command = '', ...args]: readonly string[],
  env: Record<string, string>,
  cwd: string = tmpdir(),
) {
  const {promise: ended, resolve, reject} = Promise.withResolvers<Ended>()
  const child = spawn(command, args, {
    cwd,
    env: {
      ...GIVEN_CLOCK,
      PATH: process.env.PATH,
      XDG_CONFIG_HOME: process.env.XDG_CONFIG_HOME,
      NODE_COMPILE_CACHE: COMPILE_CACHE,
      ...env,
    },
  })
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString()
  })
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString()
  })
  child.on('error', reject)
  child.on('close', (code, signal) => resolve({code, signal, stdout, stderr}))
  return {
    process: child,
    printed: () => ({stdout, stderr}),
    ended,
    [Symbol.dispose]() {
      child.kill('SIGKILL')
    },
  }
}

/** A stored deal; the number sets its id and its place in the list. */
export function aDeal(number: number, fields: Partial<StoredDeal> = {}): StoredDeal {
  return {
    id: `deal_${String(number).padStart(6, '0')}`,
    property_address: `${number} Main St, Austin, TX 78701`,
    loan_amount_cents: 350_000_00n,
    property_value_cents: 500_000_00n,
    loan_program: 'bridge_30yr',
    status: 'draft',
    created_at: Date.parse('2026-01-05T15:00:00Z') + number * 1000,
    ...fields,
  }
}

export function someDeals(count: number, fields: Partial<StoredDeal> = {}): StoredDeal[] {
  return Array.from({length: count}, (_, index) => aDeal(index + 1, fields))
}

/** Returns the error that `work` throws. @throws Error if it throws none */
export async function failureOf(
  work: Promise<unknown>,
): Promise<Error & Partial<Failure> & {exitCode?: number}> {
  try {
    await work
  } catch (error) {
    if (error instanceof Error) return error
    throw new Error('something other than an error was thrown', {cause: error})
  }
  throw new Error('nothing was thrown')
}
