import {dirname, join, resolve} from 'node:path'
import pLimit from 'p-limit'
import {requireSource} from '../core/config.ts'
import {EXIT_CODES, explainError, newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {carryOutCommand} from '../core/process.ts'
import {ENV_FILE} from '../core/settings.ts'
import {expectOneOf} from '../core/text.ts'
import type {CombinedVerification} from '../export/publish.ts'
import {readJobs} from '../schedule/job.ts'
import {createSupervisor, type Source} from '../schedule/supervisor.ts'
import {dataFolderAt, isDemoFolder, requireWritable} from '../store/data-folder.ts'
import {hasStateDb, openStateDb} from '../store/state-db.ts'
import {readRow, readState, type SourceRow, sortSources, startFleetWeb} from '../web/fleet.ts'
import {does, type Invocation} from './command.ts'
import type {Cli} from './context.ts'
import {listSources, readConfig, requireSourceFolder} from './read-config.ts'
import {figure, type Text, tableOf} from './table.ts'

export const commands = {
  serve: does(async ({config: given, options, world}: Invocation<{web: boolean}>) => {
    const folder = dataFolderAt(given.dataDir)
    // The data of a demo is only shown: no job is due, and no webhook is accepted.
    const isDemo = isDemoFolder(folder)
    const config = isDemo ? {...given, webhookSecret: undefined} : given
    let jobs = isDemo ? [] : readJobs(config)
    if (!isDemo) requireWritable(folder)
    if (config.now !== undefined && !isDemo)
      world.log.warn({reason: config.now}, 'LOANTAPE_NOW stops the clock: each run counts for the same day')
    using stateDb = openStateDb(folder.stateDb, {isServed: true})
    const {startWeb} = await import('../web/web-server.ts')
    const list = () => (isDemo ? [] : [''])
    const read = () => {
      jobs = readJobs(config)
      return {config, folder, jobs}
    }
    const supervisor = createSupervisor({list, read, runs: 1}, world)
    const findFault = () => supervisor.served()[0]?.findFault()
    const listJobs = () => jobs.filter(({enabled, fault}) => enabled || fault)
    const tools = {stateDb, folder, listJobs, findFault}
    await using web = options.web ? await startWeb(config, tools, world) : undefined
    if (web) world.log.info({url: web.url}, 'web side listens')
    await supervisor.run()
  }),
  'fleet serve': does(async (call: Invocation<{web: boolean}>) => {
    const {cli, config, options, world} = call
    const fleetDir = findFleet(call)
    const sources = {
      list: () => listSources(fleetDir),
      read: (name: string) => readSource(cli, fleetDir, name),
      runs: config.fleetRuns,
      patienceMs: PATIENCE_MS,
    }
    const supervisor = createSupervisor(sources, world)
    const readRows = () =>
      supervisor.served().map(({name, requireOpen}) =>
        readRow(name, () => {
          const {source, stateDb} = requireOpen()
          return readState(source, stateDb, world)
        }),
      )
    await using web = options.web ? await startFleetWeb(config, readRows, world) : undefined
    if (web) world.log.info({url: web.url}, 'web side listens')
    await supervisor.run()
  }),
  'fleet status': does(
    (call: Invocation<{maxAge?: number}>) => {
      const {cli, options, world} = call
      const fleetDir = findFleet(call)
      const sources = requireSources(fleetDir).map((name) =>
        readRow(name, () => {
          const source = readSource(cli, fleetDir, name)
          const {folder} = source
          const path = hasStateDb(folder) ? folder.stateDb : ':memory:'
          using stateDb = openStateDb(path, {patienceMs: PATIENCE_MS})
          return readState(source, stateDb, world, options.maxAge)
        }),
      )
      return {healthy: sources.every((row) => row.healthy), sources}
    },
    ({sources}) => renderRows(sources),
    ({healthy}) => (healthy ? 0 : 1),
  ),
  'fleet run': does(
    async (call: Invocation<{source?: string[]}>, job: string) => {
      const {cli, config, options, world} = call
      const fleetDir = findFleet(call)
      const runOne = async (source: string) => {
        const tell = (exit_code: number, words: string) => {
          return {source, exit_code, words: words.trim().replaceAll(/\s*\n\s*/g, ' ')}
        }
        try {
          world.signal.throwIfAborted()
          const {environment} = readSource(cli, fleetDir, source)
          const end = await carryOutCommand(['run', job], {...environment, signal: world.signal})
          return tell(end.exitCode ?? 1, end.words)
        } catch (error) {
          const {code, exitCode, message} = world.signal.aborted
            ? newError('INTERRUPTED', 'The run was not started.')
            : explainError(error)
          return tell(exitCode, `${message} [${code}]`)
        }
      }
      const inTurn = pLimit(config.fleetRuns)
      const names = requireSources(fleetDir, options.source)
      return {runs: await Promise.all(names.map((name) => inTurn(() => runOne(name))))}
    },
    ({runs}) => runs.map(({source, exit_code, words}) => `${source}: exit ${exit_code}. ${words}`),
    ({runs}) => {
      // Codes other than ours are crashes of Node: 13, 134.
      const codes = runs.map(({exit_code: code}) => (code in EXIT_CODES ? code : 1))
      return BY_WEIGHT.find((code) => codes.includes(code)) ?? 0
    },
  ),
  'fleet verify': does(
    async (call: Invocation) => {
      refuseData(call)
      const {config, world} = call
      const {verifyCombined} = await import('../export/publish.ts')
      return verifyCombined(config, world)
    },
    renderVerified,
    ({differing}) => (differing > 0 ? 1 : 0),
  ),
}

function renderVerified({server, totals, differing}: CombinedVerification): string {
  if (totals.length === 0) return `Nothing at ${server} is computed over all lenders yet.`
  if (differing === 0)
    return `All of ${quantity(totals.length, 'sum')} at ${server} match the total over all lenders.`
  const lines = totals
    .filter(({together, sum}) => together !== sum)
    .map(({table, column, together, sum}) => `${table}.${column}: ${together} together, ${sum} as a sum`)
  return [
    `${differing} of ${quantity(totals.length, 'sum')} at ${server} ${differing === 1 ? 'differs' : 'differ'}:`,
    ...lines,
  ].join('\n  ')
}

function refuseData({options}: Invocation): void {
  if (options.data === undefined) return
  throw newError('USAGE', `Folder '${options.data}' in --data: expected none, each source has its own.`)
}

function findFleet(call: Invocation): string {
  refuseData(call)
  return dirname(resolve(call.cli.envFile ?? ENV_FILE))
}

/** All sources by default. @throws ConfigError `FLEET_NONE`, `UNKNOWN_NAME` */
function requireSources(fleetDir: string, asked?: readonly string[]): string[] {
  const names = listSources(fleetDir)
  if (names.length === 0) throw newError('FLEET_NONE', `No source in '${fleetDir}': its folder is empty.`)
  const unknown = asked?.find((name) => !names.includes(name))
  if (unknown !== undefined) {
    throw newError('UNKNOWN_NAME', `Source '${unknown}' in --source: ${expectOneOf(unknown, names)}.`)
  }
  return asked ? names.filter((name) => asked.includes(name)) : names
}

/** Exit codes by weight: first those that need a person, lowest first, then those that another attempt may fix. */
const BY_WEIGHT = [1, 2, 3, 5, 7, 8, 6, 4]

/** How long to wait for a source's state database; all other sources wait too. */
const PATIENCE_MS = 500

/** Locations of programs and files, but no settings. */
const INHERITED =
  /^(PATH|HOME|USER|LANG|LC_ALL|TZ|TMPDIR|XDG_CONFIG_HOME|NODE_(COMPILE_CACHE|EXTRA_CA_CERTS)|SSL_CERT_(DIR|FILE)|(HTTPS?|NO)_PROXY|(https?|no)_proxy)$/

/** Reads a source as its own processes would. @throws ConfigError for problems of its folder, settings or jobs */
function readSource(cli: Pick<Cli, 'env'>, fleetDir: string, name: string): Source {
  const dir = requireSourceFolder(fleetDir, name)
  const env = Object.fromEntries(Object.entries(cli.env).filter(([variable]) => INHERITED.test(variable)))
  const {dataDir, jobsDir, ...settings} = requireSource(readConfig({env, envFile: join(dir, ENV_FILE)}, {}))
  const config = {
    ...settings,
    dataDir: resolve(dir, dataDir),
    ...(jobsDir !== undefined && {jobsDir: resolve(dir, jobsDir)}),
  }
  return {
    config,
    folder: dataFolderAt(config.dataDir),
    jobs: readJobs(config),
    environment: {env, cwd: dir},
  }
}

function renderRows(rows: readonly SourceRow[]): Text {
  const sorted = sortSources(rows)
  const lines = sorted.map((row) => {
    const {source, state, error, last_success, release, running, alarms, next_slot: next} = row
    return {
      source,
      state,
      last_success: last_success && `${last_success.age_hours} h ago`,
      as_of: release?.as_of,
      deals: release?.deals,
      amount: figure(release?.amount),
      running,
      wrong: error?.code ?? alarms.map(({name, state}) => `${name}: ${state}`).join(', '),
      next_slot: next && `${next.job} ${next.slot}`,
    }
  })
  return [
    tableOf(lines),
    sorted.map(({source, error}) => error && `\n${source}: ${error.message} [${error.code}]`),
  ]
}
