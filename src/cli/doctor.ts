import {lstatSync} from 'node:fs'
import {statfs} from 'node:fs/promises'
import {describeLost, readStanding} from '../accounting/journal-origin.ts'
import {findUnmapped, quotePrograms} from '../accounting/mapping.ts'
import {type Config, requireSource} from '../config.ts'
import {dealStream} from '../contract/deal.ts'
import {findEnvelope, readPage} from '../contract/envelope.ts'
import {isSameMapping} from '../contract/mapped-field.ts'
import {readTargets} from '../delivery/target.ts'
import {explainError, type Failure, newError} from '../errors.ts'
import {compileModels} from '../model/compile-models.ts'
import {quantity} from '../money.ts'
import {findOwnMapping, requireOwnMapping} from '../pipeline/account-mapping.ts'
import {findKnownFields, readMappedFields} from '../pipeline/fields-file.ts'
import {readPrograms, readUnmappedEndings} from '../pipeline/journal-read.ts'
import {listNotIssued} from '../pipeline/not-issued.ts'
import {readRateFeeds} from '../pipeline/rates.ts'
import {listDisagreements} from '../pipeline/record-compare.ts'
import {readSources} from '../pipeline/sources.ts'
import {keyFileOf, requireTapeKey} from '../pipeline/tape-key.ts'
import {requirePin} from '../pipeline/walk.ts'
import {findCurrentRelease} from '../release/manifest.ts'
import {RELEASE_NEXT, verifyReleaseFiles} from '../release/verify-release.ts'
import {listExportedProfiles, readJobs, type Step} from '../schedule/job.ts'
import {createClient} from '../source/client.ts'
import {hasStateDb, openStateDb} from '../state/state-db.ts'
import {findTapeKey} from '../state/tape-rows.ts'
import type {World} from '../types.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../warehouse/data-folder.ts'
import {openHistory} from '../warehouse/history.ts'
import {readSetting} from '../warehouse/stored-settings.ts'
import {hasWarehouse} from '../warehouse/warehouse.ts'
import type {CliCommand} from './command.ts'
import {describeFirstSync, isWholeList} from './first-sync.ts'
import {renderNotIssued} from './period.ts'

interface Finding {
  check: string
  ok: boolean
  words: string
}

/** `loantape doctor`. */
export default function addDoctor(command: CliCommand): void {
  command
    .description(
      'check configuration, source, data folder, models and release; exit 1 when something is wrong',
    )
    .example('doctor')
    .examines()
    .does(
      async ({cli, config, world}) => {
        const findings = await examine(config, world)
        const healthy = findings.every(({ok}) => ok)
        if (!healthy) cli.exitCode = 1
        return {healthy, findings}
      },
      ({findings}) => findings.map(({check, ok, words}) => `${ok ? '✓' : '✗'} ${check}: ${words}`).join('\n'),
    )
}

async function examine(config: Config, world: World): Promise<Finding[]> {
  const folder = dataFolderAt(config.dataDir)
  const findings: Finding[] = []
  for (const [check, look] of Object.entries(EXAMINATIONS)) {
    const found = await look(config, folder, world).catch((error: unknown) => [explainError(error)])
    if (typeof found === 'string') findings.push({check, ok: true, words: found})
    else findings.push(...found.map((fault) => ({check, ok: false, words: wordsOf(fault)})))
  }
  return findings
}

function wordsOf({problem, next}: {problem: string; next?: string | undefined}): string {
  return next === undefined ? problem : `${problem} ${next}`
}

/** One thing to look at: resolves with what was found in words, or with what is wrong; or throws it. */
type Examination = (config: Config, folder: DataFolder, world: World) => Promise<string | readonly Failure[]>

/** What `doctor` always looks at; takes seconds. */
const EXAMINATIONS: Readonly<Record<string, Examination>> = {
  'data folder': async (_config, folder) => {
    requireWritable(folder)
    const {bavail, bsize} = await statfs(folder.root)
    return `${folder.root}, ${Math.round((bavail * bsize) / 1e9)} GB free`
  },
  tapes: async (config, folder, world) => {
    if (!hasStateDb(folder)) return 'none yet'
    using stateDb = openStateDb(folder.stateDb)
    if (findTapeKey(stateDb) === undefined) return 'none yet'
    const {fingerprint} = requireTapeKey(config, folder, stateDb, world)
    return `sealed with key ${fingerprint} of ${keyFileOf(config, folder)}`
  },
  stores: async (config, _folder, world) => {
    const found = await listDisagreements(config, world)
    if (found.length === 0) return 'tell the same'
    return found.map(({store, problem}) => newError('STORES_DISAGREE', `${store}: ${problem}`))
  },
  models: async (config, folder, world) => {
    const sources = readSources(config, await findKnownFields(folder))
    await compileModels(sources, world)
    return `${quantity(sources.models.length, 'model')}, ${quantity(sources.checks.length, 'check')} and ${quantity(sources.seeds.length, 'seed')} compile`
  },
  fields: async (_config, folder) => {
    const [asked, known] = [readMappedFields(folder), await findKnownFields(folder)]
    if (!hasWarehouse(folder) || isSameMapping(asked, known))
      return asked.map(({name}) => name).join(', ') || 'none mapped'
    const problem = `Fields in '${folder.fields}' are not those of the warehouse.`
    return [
      {code: 'FIELDS_CHANGED', problem, next: '`loantape rebuild --apply` brings them in, with their past.'},
    ]
  },
  accounts: async (config, folder) => {
    if (!findOwnMapping(config))
      return 'none: nothing is issued or closed until `loantape accounting init` has written some and you have set them'
    const mapping = requireOwnMapping(config)
    const release = findCurrentRelease(folder)
    const unmapped = release ? findUnmapped(mapping, await readPrograms(release)) : []
    const endings = release ? await readUnmappedEndings(release) : []
    if (unmapped.length + endings.length === 0) return 'every program and every ending has one'
    const problems = [
      ...(unmapped.length > 0 ? [`Programs without a receivable account: ${quotePrograms(unmapped)}.`] : []),
      ...(endings.length > 0 ? [`Endings without an account: ${endings.join(', ')}.`] : []),
    ]
    return [newError('ACCOUNTING_UNMAPPED', problems.join(' '))]
  },
  books: async (config, folder) => {
    if (!hasStateDb(folder) || !hasWarehouse(folder)) return 'nothing issued yet'
    using stateDb = openStateDb(folder.stateDb)
    const {standing, lost} = await readStanding(stateDb, folder)
    if (standing !== 'whole') throw describeLost(folder, {standing, lost})
    const open = await listNotIssued(folder, listExportedProfiles(await readJobs(config)))
    const words = open.map((one) => `${renderNotIssued(one)} of ${one.period}`)
    return `stand on this history; not yet issued: ${words.join('; ') || 'nothing'}`
  },
  jobs: async (config) => `${(await readJobs(config)).map(({name}) => name).join(', ')}`,
  targets: async (config) => {
    const asked = (await readJobs(config)).flatMap(({steps}) => steps.flatMap(listTargets))
    if (config.targetsFile === undefined && asked.length === 0) return 'none configured'
    readTargets(config, asked)
    return readTargets(config)
      .map(({name}) => name)
      .join(', ')
  },
  rates: async (config) => {
    const feeds = readRateFeeds(config)
    return feeds.length > 0 ? feeds.map(({name}) => name).join(', ') : 'no feeds configured'
  },
  source: async (config, folder, world) => {
    const source = requireSource(config)
    const pin = await readPin(folder)
    requirePin(pin, source.baseUrl)
    await using client = createClient({...source, retries: 0}, world)
    const {status, body} = await client.getJson(dealStream.listPath, {limit: source.pageSize})
    if (status !== 200)
      throw newError('DOCTOR_SOURCE', `Status ${status} from GET ${dealStream.listPath}: expected 200.`)
    const words = `${source.baseUrl} answers and takes the key`
    if (pin !== undefined) return words
    const {records, nextCursor} = readPage(body, findEnvelope(body))
    const isWhole = source.detail === 'auto' && isWholeList(records, readMappedFields(folder))
    const asked = {...source, ...(isWhole && {detail: 'off' as const})}
    return `${words}; ${describeFirstSync(asked, nextCursor === null ? records.length : undefined)}`
  },
  history: async (_config, folder) => {
    if (!hasWarehouse(folder)) return 'none yet'
    await using _db = await openHistory(folder)
    return 'opens'
  },
  release: async (_config, folder) => {
    const release = findCurrentRelease(folder)
    if (!release) return describeNoRelease(folder)
    const faults = await verifyReleaseFiles(release)
    const {release_id, tables} = release.manifest
    return faults.length > 0
      ? faults
      : `${release_id}: ${quantity(tables.length, 'file')} ${tables.length === 1 ? 'matches' : 'match'} the manifest`
  },
}

async function readPin(folder: DataFolder): Promise<string | undefined> {
  if (!hasWarehouse(folder)) return undefined
  await using db = await openHistory(folder)
  return await readSetting(db, 'source_base_url', 'history')
}

function listTargets(step: Step): string[] {
  if (step.do === 'deliver') return step.targets
  return step.do === 'export' ? (step.deliver ?? []) : []
}

function describeNoRelease(folder: DataFolder): string | readonly Failure[] {
  if (!lstatSync(folder.current, {throwIfNoEntry: false})) return 'none yet'
  const problem = `Link '${folder.current}' points to no release with a manifest.`
  return [{code: 'RELEASE_DANGLING', problem, next: RELEASE_NEXT}]
}
