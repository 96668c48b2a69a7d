import {accessSync, constants, existsSync, statSync} from 'node:fs'
import {statfs} from 'node:fs/promises'
import {basename, join, relative} from 'node:path'
import {z} from 'zod'
import {findOwnMapping, requireOwnMapping} from '../accounting/mapping.ts'
import {listUnmapped} from '../accounting/read-journal.ts'
import {listNotIssued, requireSameHistory} from '../books/standing.ts'
import {compileModels} from '../build/compile.ts'
import {publishedOf, requireContract} from '../build/published.ts'
import {readSources} from '../build/sources.ts'
import {verifyRelease} from '../build/verify-release.ts'
import {dealStream} from '../contract/deal.ts'
import {readPage} from '../contract/list.ts'
import {isSameMapping, type MappedField} from '../contract/mapped-field.ts'
import {optionalColumnsOf} from '../contract/stream.ts'
import {needHashKey, parseChildStreams} from '../contract/streams.ts'
import {businessDateOf} from '../core/clock.ts'
import {burstOf, type Config, envNameOf, requireSource, type SourceConfig} from '../core/config.ts'
import {codeOf, explainError, type Fault, newError} from '../core/errors.ts'
import {findValue, isObject, parseJson} from '../core/json.ts'
import {groupThousands, quantity} from '../core/money.ts'
import {GENERATOR, VERSION} from '../core/process.ts'
import {isHere} from '../core/text.ts'
import type {World} from '../core/types.ts'
import {readTargets} from '../export/delivery-target.ts'
import {signIn} from '../export/publish.ts'
import {PUBLISH_TARGETS} from '../export/target.ts'
import {listDisagreements} from '../record/record-compare.ts'
import {CHANNELS, listAlarmChannels, listAlarms, UNSENT_AFTER_MS} from '../schedule/alarms.ts'
import {listExportedProfiles, listFaults, readJobs, type Step} from '../schedule/job.ts'
import {askOwnPage} from '../source/ask-each.ts'
import {createClient, type JsonAnswer, type SourceClient} from '../source/client.ts'
import {createNormaliser} from '../source/record.ts'
import {createRefused} from '../source/walk-pages.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../store/data-folder.ts'
import {listFilesBelow} from '../store/files.ts'
import {findTapeKey} from '../store/recorded.ts'
import {findCurrentRelease} from '../store/release.ts'
import {SQL_DIR} from '../store/sql.ts'
import {hasStateDb, listPendingOfState, openStateDb} from '../store/state-db.ts'
import {keyFileOf, requireTapeKey} from '../store/tape-key.ts'
import {
  hasWarehouse,
  openHistory,
  openHistoryAsItIs,
  readSettings,
  requireHashKey,
} from '../store/warehouse.ts'
import {readDescription, readPin, requireClock} from '../sync/at-source.ts'
import {findKnownFields, listKnownFields, readMappedFields} from '../sync/mapped-fields.ts'
import {readRateFeeds} from '../sync/rates.ts'
import {renderNotIssued} from './books.ts'
import {does, type Invocation} from './command.ts'
import {tableOf} from './table.ts'

export const commands = {
  doctor: does(
    async ({config, world, options}: Invocation<{try?: true}>) => {
      const findings = await examine(EXAMINATIONS, config, world)
      const healthy = findings.every(({ok}) => ok)
      const canTry = findings.every(({check, ok}) => ok || check !== 'source')
      const tried = options.try && canTry ? await readFirstDeal(config, world) : undefined
      return {healthy, findings, ...(tried && {tried})}
    },
    ({findings, tried}) => [
      renderFindings(findings),
      tried && ['', tried.fields.length > 0 && ['The first deal of the list:', tableOf(tried.fields)]],
      tried?.problems,
    ],
    ({healthy}) => (healthy ? 0 : 1),
  ),
  'upgrade-check': does(
    async ({config, world}) => {
      const findings = await examine(OF_UPGRADE, config, world)
      return {version: VERSION, ready: findings.every(({ok}) => ok), findings}
    },
    ({findings}) => renderFindings(findings),
    ({ready}) => (ready ? 0 : 1),
  ),
}

const renderFindings = (findings: Awaited<ReturnType<typeof examine>>) =>
  findings.map(({check, ok, words}) => `${ok ? '✓' : '✗'} ${check}: ${words}`)

async function examine(examinations: Examinations, config: Config, world: World) {
  const folder = dataFolderAt(config.dataDir)
  const findings: {check: string; ok: boolean; words: string}[] = []
  for (const [check, look] of Object.entries(examinations)) {
    // To a user who may not look into the folder, nothing is there.
    if (findings.length > 0 && !mayLookInto(folder.root)) break
    const found = await look(config, folder, world).catch((error: unknown) => {
      if (codeOf(error) === 'INTERRUPTED') throw error
      return [explainError(error)]
    })
    if (typeof found === 'string') findings.push({check, ok: true, words: found})
    else
      for (const {problem, next} of found) {
        const words = next === undefined ? problem : `${problem} ${next}`
        const same = findings.find((one) => one.words === words)
        findings.push({check, ok: false, words: same ? `not examined: see ${same.check}` : words})
      }
  }
  return findings
}

function mayLookInto(path: string): boolean {
  try {
    accessSync(path, constants.R_OK | constants.X_OK)
    return true
  } catch (error) {
    return codeOf(error) !== 'EACCES'
  }
}

/** Each returns words about what is in order, or the faults found; it may also throw one. */
type Examinations = Readonly<
  Record<string, (config: Config, folder: DataFolder, world: World) => Promise<string | readonly Fault[]>>
>

const namesOf = (named: readonly {name: string}[]) => named.map(({name}) => name).join(', ')

const EXAMINATIONS: Examinations = {
  'data folder': async (_config, folder) => {
    requireWritable(folder)
    const {bavail, bsize} = await statfs(folder.root)
    const [free, copied] = [bavail * bsize, statSync(folder.warehouse, {throwIfNoEntry: false})?.size ?? 0]
    const inMb = (bytes: number) => `${groupThousands(Math.round(bytes / 1e6))} MB`
    if (free > copied) return `${folder.root}, ${inMb(free)} free`
    throw newError(
      'DISK_FULL',
      `Disk of '${folder.root}': ${inMb(free)} free, and a build copies ${inMb(copied)}.`,
    )
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
    if (found.length === 0) return 'agree'
    return found.map(({store, problem}) => newError('STORES_DISAGREE', `${store}: ${problem}`))
  },
  models: async (config, folder, world) => {
    const sources = readSources(config, await findKnownFields(folder, world))
    const {reads, checkReads} = await compileModels(sources)
    const read = new Set([...reads.values(), ...checkReads.values()].flat())
    // Perhaps misspelt: the limits in a seed `limits` are kept by nobody.
    const unread = sources.seeds.filter(({name}) => !read.has(`seed.${name}`))
    const words = `${quantity(sources.models.length, 'model')}, ${quantity(sources.checks.length, 'check')} and ${quantity(sources.seeds.length, 'seed')} compile`
    return unread.length === 0 ? words : `${words}; no model or check reads the seed ${namesOf(unread)}`
  },
  fields: async (_config, folder, world) => {
    const [asked, known] = [readMappedFields(folder), await findKnownFields(folder, world)]
    if (!hasWarehouse(folder) || isSameMapping(asked, known)) return namesOf(asked) || 'none mapped'
    const problem = `Fields in '${folder.fields}' differ from those of the warehouse.`
    return [{problem, next: '`loantape rebuild --apply` brings them in, with their past.'}]
  },
  release: async (_config, folder) => {
    const release = findCurrentRelease(folder)
    if (!release) return 'none yet'
    const faults = await verifyRelease(release, {isQuick: true})
    const {release_id, tables} = release.manifest
    return faults.length > 0
      ? faults
      : `${release_id}: ${quantity(tables.length, 'file')} ${tables.length === 1 ? 'matches' : 'match'} the manifest`
  },
  accounts: async (config, folder) => {
    if (!findOwnMapping(config))
      return 'none: nothing is issued or closed until you run `loantape accounting init` and set them'
    const mapping = requireOwnMapping(config)
    const release = findCurrentRelease(folder)
    const unmapped = release ? await listUnmapped(release, mapping) : ''
    if (unmapped === '') return 'every program and every ending has one'
    return [newError('ACCOUNTING_UNMAPPED', `Without an account: ${unmapped}.`)]
  },
  books: async (config, folder, world) => {
    if (!hasStateDb(folder) || !hasWarehouse(folder)) return 'nothing issued yet'
    using stateDb = openStateDb(folder.stateDb)
    await requireSameHistory(stateDb, folder, world)
    const open = await listNotIssued(config, listExportedProfiles(readJobs(config)))
    const words = open.map((one) => `of ${one.period}: ${renderNotIssued(one)}`)
    return `match this history; not yet issued${words.length > 0 ? ` ${words.join('; ')}` : ': nothing'}`
  },
  jobs: async (config, folder, world) => {
    const jobs = readJobs(config)
    const released = findCurrentRelease(folder)?.manifest.tables
    const {models} = readSources(config, await findKnownFields(folder, world))
    const tables = released && [...released, ...models].map(({name}) => name)
    const {listPageDirs, listPages} = await import('../web/page-files.ts')
    const pages = listPages(listPageDirs(config)).map(({name}) => name)
    const unable = jobs
      .filter(({enabled}) => enabled)
      .flatMap(({name, steps}) => steps.map((step) => ({name, step})))
      .flatMap(({name, step}) =>
        listLacking(step, config, {tables, pages}).map((lacking) =>
          newError('JOB_INVALID', `Job '${name}', step ${step.do}: ${lacking}.`),
        ),
      )
    const faults = [...listFaults(jobs), ...unable]
    return faults.length > 0 ? faults : namesOf(jobs)
  },
  alarms: async (config, folder, world) => {
    using stateDb = openStateDb(hasStateDb(folder) ? folder.stateDb : ':memory:')
    // Doctor names the first failure, before it is an alarm.
    const now = world.realClock.now() + UNSENT_AFTER_MS
    const alarms = listAlarms(stateDb, {config, release: undefined, jobs: []}, now)
    const unsent = alarms.filter(({state}) => state === 'unsent')
    if (unsent.length > 0) return unsent.map(({title, words}) => ({problem: `${title}.`, next: words}))
    const channels = listAlarmChannels(config).join(' and ')
    const settings = Object.values(CHANNELS).map(({on}) => envNameOf(on))
    return `go ${channels === '' ? `nowhere until ${settings.join(' or ')} is set` : `to ${channels}`}`
  },
  targets: async (config) => {
    const asked = readJobs(config).flatMap(({steps}) => steps.flatMap(listTargets))
    if (config.targetsFile === undefined && asked.length === 0) return 'none configured'
    readTargets(config, asked)
    return namesOf(readTargets(config))
  },
  databases: async (config, _folder, world) => {
    const named = PUBLISH_TARGETS.filter((to) => databaseUrlOf(config, to) !== undefined)
    const answers = await Array.fromAsync(named, (to) =>
      signIn(config, to, world).then((server) => `${to} at ${server} lets us in`, explainError),
    )
    const faults = answers.filter((answer) => typeof answer !== 'string')
    return faults.length > 0 ? faults : answers.join(', ') || 'none configured'
  },
  rates: async (config) => {
    const feeds = readRateFeeds(config)
    return namesOf(feeds) || 'no feeds configured'
  },
  source: async (config, folder, world) => {
    const source = requireSource(config)
    const known = await readPin(folder, source, world)
    const description = readDescription(folder)
    await using client = createClient({...source, description, retries: 0}, world)
    const {body} = await askForDeals(client, source)
    const words = `${source.baseUrl} answers and accepts the key${describeTransport(source.baseUrl)}`
    const {records} = readPage(body, known?.envelope)
    if (known?.baseUrl) return words
    const isWhole =
      (description && description.deals.page === undefined) ||
      (source.detail === 'auto' && isWholeList(records, readMappedFields(folder)))
    return `${words}; ${describeFirstSync(isWhole ? {...source, detail: 'off'} : source)}`
  },
  history: async (config, folder, world) => {
    const days = `business days begin at ${config.dayCutoff} in ${config.timeZone}`
    if (!hasWarehouse(folder)) return `none yet; ${days}`
    await using db = await openHistory(folder, world)
    await requireClock(db, config, world.clock.now())
    const isHashed = (await readSettings(db)).hash_key !== undefined
    if (isHashed && needHashKey(parseChildStreams(config.streams))) await requireHashKey(db, folder)
    if (config.now !== undefined)
      return `opens; ${days}; each run counts for ${businessDateOf(world.clock.now(), config)}, because LOANTAPE_NOW stops the clock`
    return `opens; ${days}`
  },
}

/** What this version would change in the data folder of another version, without changing it. */
const OF_UPGRADE: Examinations = {
  release: async (_config, folder) => {
    const release = findCurrentRelease(folder)
    if (!release) return 'none yet'
    const {release_id, generator, engine} = release.manifest
    if (generator === GENERATOR) return `${release_id} was built by this version`
    return `${release_id} was built by ${generator} with ${engine}; the first build by this version is a new one of every table`
  },
  databases: async (_config, folder, world) => {
    const ofState = hasStateDb(folder) ? listPendingOfState(folder.stateDb).map((path) => basename(path)) : []
    const pending = [...ofState, ...(await readHistoryAsItIs(folder, world)).pending]
    if (pending.length === 0) return 'have the form of this version'
    return `the first command brings them up to date (${pending.join(', ')}); older versions refuse them then, so make a backup first`
  },
  columns: async (config, folder, world) => {
    // Reads no accounts, which columns do not depend on: opening their database would bring it up to date.
    const bare = {...config, dataDir: join(folder.root, 'none')}
    const sources = readSources(bare, (await readHistoryAsItIs(folder, world)).fields)
    const next = publishedOf(await compileModels(sources))
    if (!findCurrentRelease(folder)) return 'none published yet'
    const changes = await requireContract(folder, next, world)
    const words = changes.map(({table, column, change}) => `${change} ${table}${column ? `.${column}` : ''}`)
    return words.join(', ') || 'the same tables and columns'
  },
  'own files': async (config) => {
    const {listPageDirs, listPages} = await import('../web/page-files.ts')
    const pages = new Set(listPages([]).map(({name}) => name))
    const ownPages = listPages(listPageDirs(config)).filter(({isOwn, name}) => isOwn && pages.has(name))
    const {sqlDir = ''} = config
    const sql = (sqlDir === '' ? [] : listFilesBelow(sqlDir)).filter(
      (path) => path.endsWith('.sql') && existsSync(join(SQL_DIR, relative(sqlDir, path))),
    )
    const ours = readJobs({...config, jobsDir: undefined})
    const shipped = new Map(ours.map((job) => [job.name, JSON.stringify(job)]))
    const jobs = readJobs(config).filter((job) => {
      const other = shipped.get(job.name)
      return other !== undefined && other !== JSON.stringify(job)
    })
    const own = [...ownPages.map(({path}) => path), ...sql, ...jobs.map(({name}) => `job ${name}`)]
    return own.length === 0 ? 'none in place of ours' : `in place of ours, to be compared: ${own.join(', ')}`
  },
}

async function readHistoryAsItIs(folder: DataFolder, world: World) {
  if (!hasWarehouse(folder)) return {pending: [], fields: []}
  await using db = await openHistoryAsItIs(folder, world)
  return {pending: db.pending, fields: await listKnownFields(db)}
}

async function askForDeals(client: SourceClient, source: SourceConfig): Promise<JsonAnswer> {
  const answer = await client.getJson(dealStream.listPath, {limit: source.pageSize})
  if (answer.status >= 400) throw createRefused(answer)
  return answer
}

const mappedValues = z.array(
  z.object({name: z.string(), value: z.string().nullable(), is_readable: z.boolean()}),
)

interface Told {
  read: unknown
  received: JsonAnswer['received']
  /** Where the record stands in what was sent. */
  steps: string[]
  where: string
}

async function askForFirstDeal(
  client: SourceClient,
  source: SourceConfig,
  ownPage: string | undefined,
): Promise<{told: [Told, ...Told[]]; problem?: string} | undefined> {
  const {body, received} = await askForDeals(client, source)
  const [row] = readPage(body).records
  if (row === undefined) return undefined
  const listed = {read: row, received, steps: ['0'], where: ''}
  if (ownPage === undefined || source.detail === 'off' || !isObject(row) || typeof row.id !== 'string')
    return {told: [listed]}
  const path = `${dealStream.listPath}/${encodeURIComponent(row.id)}`
  const own = await askOwnPage(row.id, path, client).catch((error: unknown) => ({
    outcome: 'failed' as const,
    reason: codeOf(error),
  }))
  if (own.outcome === 'found')
    return {
      told: [listed, {read: own.record, received: own.received, steps: [], where: ', on its own page'}],
    }
  const reason = own.outcome === 'gone' ? `status ${own.received?.status}` : own.reason
  return {told: [listed], problem: `Its own page cannot be read: GET ${ownPage}: ${reason}.`}
}

/** How each field was sent and read, in the list or on its own page, with any problem of the record. */
async function readFirstDeal(config: Config, world: World) {
  const folder = dataFolderAt(config.dataDir)
  const description = readDescription(folder)
  // What is wrong with the file was found before.
  const mapped = await (async () => readMappedFields(folder))().catch(() => [])
  const source = requireSource(config)
  await using client = createClient({...source, description, retries: 0}, world)
  const ownPage = description ? description.deals.page : `${dealStream.listPath}/{id}`
  const first = await askForFirstDeal(client, source, ownPage)
  if (!first) return {fields: [], problems: ['There is no deal to try: the list is empty.']}
  const {told, problem} = first
  const show = (value: unknown) => (value === undefined ? '(nothing)' : JSON.stringify(value))
  const findTold = (path: readonly string[]) =>
    told.find(({read}) => findValue(read, path, null) !== undefined) ?? told[0]
  const sentAt = ({received: {original}, steps}: Told, path: string) =>
    findValue(parseJson(String(original?.body)), [...(original?.at ?? []), ...steps, ...path.split('.')])
  const ofContract = dealStream.wireFields.map((field) => {
    const found = findTold([field])
    const read = show(findValue(found.read, [field]))
    const paths = description?.deals.fields[field]?.path ?? [field]
    const value = description ? paths.map((path) => show(sentAt(found, path))).join(', ') : read
    return {field, 'sent as': paths.join(', ') + found.where, value, 'read as': read}
  })
  const whole: unknown = Object.assign({}, ...told.map(({read}) => read).reverse())
  const read = createNormaliser({...dealStream, mapped})([whole], 0n)
  const values = mappedValues.parse(parseJson(read.observations[0]?.mapped ?? '[]'))
  const ofMapping = mapped.map(({name, path, type}) => {
    const kept = values.find((value) => value.name === name)
    const read = kept?.is_readable === false ? `unreadable as ${type}` : show(kept?.value)
    const found = findTold(path)
    const value = show(findValue(found.read, path, null))
    return {field: name, 'sent as': path.join('.') + found.where, value, 'read as': read}
  })
  const isWithheld = told.some(({received: {original}}) => original && !original.body)
  const problems = [
    ...read.quarantined.map(({path, reason}) => `It cannot be read: ${path}: ${reason}.`),
    ...(problem === undefined ? [] : [problem]),
    ...(isWithheld ? ['What was sent is not shown: the answer holds the key.'] : []),
  ]
  return {fields: [...ofContract, ...ofMapping], problems}
}

/** On this machine, TLS does not matter. */
export const describeTransport = (url: string): string =>
  url.startsWith('http:') && !isHere(url) ? ', unencrypted: anybody on the way can read key and deals' : ''

const databaseUrlOf = ({postgresUrl, clickhouseUrl}: Config, to: (typeof PUBLISH_TARGETS)[number]) =>
  ({postgres: postgresUrl, clickhouse: clickhouseUrl})[to]

function listLacking(
  step: Step,
  config: Config,
  {tables, pages}: {tables: readonly string[] | undefined; pages: readonly string[]},
): string[] {
  if (step.do === 'publish') {
    return databaseUrlOf(config, step.to) === undefined
      ? [`LOANTAPE_${step.to.toUpperCase()}_URL not set`]
      : []
  }
  if (step.do === 'digest') {
    const [page = ''] = step.page.split('?')
    const isOurMorning = page === 'morning' && !pages.includes(page)
    if (!isOurMorning && !pages.includes(page)) return [`page '${page}' is neither yours nor shipped`]
    if (isOurMorning && step.to && config.viewerTables)
      return [`page 'morning' needs all tables, and LOANTAPE_VIEWER_TABLES gives viewers some`]
    return step.to && config.smtpUrl === undefined ? [`LOANTAPE_SMTP_URL not set, which 'to' needs`] : []
  }
  const unknown = step.do === 'export' && tables ? step.tables?.filter((name) => !tables.includes(name)) : []
  return (unknown ?? []).map((table) => `table '${table}' is neither in the current release nor a model`)
}

function listTargets(step: Step): string[] {
  if (step.do === 'deliver') return step.targets
  return step.do === 'export' || step.do === 'backup' ? (step.deliver ?? []) : []
}

/** A list does not tell its length, so the time of a first sync is given for this many. */
const DEALS = 1000

export function describeFirstSync(config: Config): string {
  const {ratePerSecond, pageSize, detail, detailBudgetMinutes, streams} = config
  const children = parseChildStreams(streams).map(({plural}) => plural)
  const wanted = detailBudgetMinutes === 0 ? [] : [...(detail === 'off' ? [] : ['details']), ...children]
  const requests = Math.ceil(DEALS / pageSize) + DEALS * wanted.length
  const time = formatTime(Math.max(0, requests - burstOf(config)) / ratePerSecond)
  const words = `a first sync takes ${time} for every ${quantity(DEALS, 'deal')}`
  if (wanted.length === 0) return `${words} at ${ratePerSecond} requests/s`
  const most = Math.floor((detailBudgetMinutes * 60 * ratePerSecond) / wanted.length)
  const listed = new Intl.ListFormat('en-GB').format(wanted)
  return `${words} with ${listed} at ${ratePerSecond} requests/s; LOANTAPE_DETAIL_BUDGET_MINUTES lets one run get those of ${quantity(most, 'deal')}, later runs the rest`
}

function isWholeList(records: readonly unknown[], mapped: readonly MappedField[]): boolean {
  const names = (path: readonly string[]) => (record: unknown) => findValue(record, path, null) !== undefined
  return (
    records.length > 0 &&
    optionalColumnsOf(dealStream).every(({name}) => records.every(names([name]))) &&
    mapped.every(({path}) => records.some(names(path)))
  )
}

function formatTime(seconds: number): string {
  if (seconds < 60) return `about ${Math.max(1, Math.ceil(seconds))} s`
  if (seconds < 90 * 60) return `about ${Math.round(seconds / 60)} min`
  return `about ${Math.round(seconds / 3600)} h`
}
