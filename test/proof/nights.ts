import assert from 'node:assert/strict'
import {chmodSync, copyFileSync, mkdirSync, mkdtempDisposableSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {z} from 'zod'
import {buildRelease} from '../../src/build/build.ts'
import {aRow, insertRows, type Row} from '../../src/build/case-rows.ts'
import {compareBuilds} from '../../src/build/compare-builds.ts'
import {DEAL_COLUMNS, readLastBuild} from '../../src/build/last-build.ts'
import {addDays} from '../../src/core/clock.ts'
import {type Config, parseConfig} from '../../src/core/config.ts'
import type {Random} from '../../src/service/portfolio.ts'
import {type DataFolder, dataFolderAt} from '../../src/store/data-folder.ts'
import {openDatabase, quoteLiteral} from '../../src/store/database.ts'
import {momentOf} from '../../src/store/moment.ts'
import {readRelease, readReleaseModels, requireRelease} from '../../src/store/release.ts'
import {migrate} from '../../src/store/warehouse.ts'
import {createDealSet} from '../../src/web/deal-set.ts'
import {anyRow, createWorldAt} from '../support/data.ts'
import {type ProofRequest, type Proved, prove} from './proof.ts'

const NIGHTS = 6

const FIRST_DAY = '2026-01-20'
const DEALS = 80

/** The generated rows do not tie out to a certificate, so an empty check replaces this one. */
const NO_BRIDGE = '-- Says nothing.\n-- severity: error\nselect walk_id from mart.run where false\n'

const STATUSES = ['draft', 'underwriting', 'approved', 'funded', ' Funded', 'paid_off', 'withdrawn', 'odd']
const PROGRAMS = ['bridge', 'dscr', null, undefined] as const
const ADDRESSES = ['1 Main St, Austin, TX 78701', 'nowhere', '9  Ocean Ct, Stamford, CT'] as const

interface Growing {
  random: Random
  seq: number
  day: string
  seen: {deal_id: string; observed_at: string; business_date: string}[]
}

/**
 * Grows random histories night by night and builds each night both from the previous build and from nothing: every published
 * table must be the same, byte by byte. Deals change, go missing and come back; records come late, are replayed or stay in
 * quarantine; lists of borrowers and documents change; clocks step back; days pass without a walk; the cache is lost or damaged.
 * A run is one history of several nights.
 */
export function proveNights(request: ProofRequest): Promise<Proved> {
  return prove('nights', request, async ({random, add}) => {
    using root = mkdtempDisposableSync(join(tmpdir(), 'loantape-nights-'))
    const {config, folder, grow} = createGrowingFolder(root.path, random)
    for (let night = 0; night < NIGHTS; night += 1) {
      const world = await grow()
      if (night > 0 && random.chance(0.05)) add(spoilLastBuild(folder, random))
      const before = readLastBuild(folder)
      await compareBuilds(config, {}, world)
      const last = readLastBuild(folder)
      if (last?.release_id === before?.release_id) add('nights with nothing new')
      else add(last && last.rebuilt > 0 ? 'nights from the one before' : 'nights from nothing')
    }
    add(await proveDealSet(root.path, config, random))
  })
}

export function createGrowingFolder(root: string, random: Random) {
  const folder = dataFolderAt(join(root, 'data'))
  const sqlDir = join(root, 'sql')
  mkdirSync(folder.root)
  mkdirSync(join(sqlDir, 'checks'), {recursive: true})
  mkdirSync(join(sqlDir, 'seeds'))
  writeFileSync(join(sqlDir, 'checks/certificate_bridge_holds.sql'), NO_BRIDGE)
  writeFileSync(
    join(sqlDir, 'seeds/funded_on.csv'),
    'deal_id,funded_on:date\ndeal_3,2026-01-02\ndeal_4,2026-02-01\n',
  )
  const env = {LOANTAPE_DATA_DIR: folder.root, LOANTAPE_SQL_DIR: sqlDir}
  const config: Config = {...parseConfig(env, {readFile: () => ''}), releasesKept: 2, build: 'incremental'}
  const growing: Growing = {random, seq: 0, day: FIRST_DAY, seen: []}
  let night = 0
  return {
    config,
    folder,
    /** Stores the next night. @returns a world in the night after it */
    async grow() {
      if (night > 0) growing.day = addDays(growing.day, random.pick([0, 1, 1, 1, 2, 5, 12, 30]))
      await using db = await openDatabase({attach: [{path: folder.warehouse, alias: 'history'}]})
      await migrate(db, 'history')
      for (const [table, rows] of Object.entries(drawNight(growing, night))) await insertRows(db, table, rows)
      // A new id, as of a history that was undone and grew again: it is a different history, even if all its rows are the same.
      if (random.chance(0.03)) await db.run(`update history.raw.settle set history_id = history_id || 'x'`)
      night += 1
      return createWorldAt(`${addDays(growing.day, 1)}T04:00:00Z`)
    },
  }
}

/**
 * Requires a set of half the deals of the last release to have the same tables as a whole build of a history with only those
 * deals.
 * @returns what was compared, in words
 */
async function proveDealSet(root: string, config: Config, random: Random): Promise<string> {
  const folder = dataFolderAt(config.dataDir)
  const release = requireRelease(folder)
  const models = readReleaseModels(release.dir) ?? []
  // Not `openForQuestions`, which gives no access to other files, such as the Parquet files below.
  await using db = await openDatabase({
    attach: [
      {path: release.database, alias: 'release', readOnly: true},
      {path: release.work, alias: 'kept', readOnly: true},
    ],
  })
  const {as_of, time_zone} = release.manifest
  await db.run(
    `set variable as_of = date ${quoteLiteral(as_of)}; set variable time_zone = ${quoteLiteral(time_zone)}`,
  )
  const half = {catalog: 'half', condition: `hash(deal_id) % 2 = ${random.integer(0, 1)}`}
  const set = await createDealSet(db, models, half)
  const ofDeals = models.filter(({is_published, reads}) => is_published && !reads.includes('raw.walk'))
  const names = ofDeals.filter(({reads}) => !reads.some((read) => ['raw.drift', 'raw.rate'].includes(read)))
  await set.require(names.map(({name}) => name))
  const other = dataFolderAt(join(root, 'half'))
  mkdirSync(other.root)
  copyFileSync(folder.warehouse, other.warehouse)
  {
    const ids = await db.all(z.object({deal_id: z.string()}), 'from half.main.deals')
    const those = ids.map(({deal_id}) => quoteLiteral(deal_id)).join(', ')
    await using history = await openDatabase({attach: [{path: other.warehouse, alias: 'history'}]})
    for (const [table, column] of Object.entries(DEAL_COLUMNS))
      await history.run(`delete from history.raw.${table} where ${column} not in (${those || 'null'})`)
  }
  const {dir} = await buildRelease(
    {...config, dataDir: other.root, build: 'whole'},
    // The moment is the release's, because the last thing stored may concern only the other half.
    momentOf(release.manifest),
    createWorldAt(`${addDays(release.manifest.as_of, 1)}T04:00:00Z`),
  )
  for (const {name} of names) {
    const expected = `from read_parquet(${quoteLiteral(join(dir, `${name}.parquet`))})`
    const both = [expected, `from half.${name}`]
    for (const [one, other] of [both, both.toReversed()])
      assert.deepEqual(
        await db.all(anyRow, `(${one}) except all (${other}) limit 2`),
        [],
        `${name} of half the deals`,
      )
  }
  return `sets of half the deals, of ${names.length} tables`
}

function spoilLastBuild(folder: DataFolder, random: Random): string {
  const last = readLastBuild(folder)
  const release = last && readRelease(join(folder.releases, last.release_id))
  if (!release) return 'caches not there'
  if (random.chance(0.5)) {
    rmSync(folder.cache, {recursive: true})
    return 'caches lost'
  }
  chmodSync(release.work, 0o600)
  writeFileSync(release.work, 'spoilt')
  return 'work tables spoilt'
}

/** Draws what one night stores, by raw table: a walk, or only what webhooks and replays brought. */
function drawNight(growing: Growing, night: number): Record<string, Row[]> {
  const {random, day, seen} = growing
  const hour = random.integer(1, 4)
  const stamp = (minute: number) => `${day} 0${hour}:${String(minute).padStart(2, '0')}:00`
  const recorded_at = `${addDays(FIRST_DAY, night * 40)} 12:00:00`
  const walk_id = `walk ${night}`
  const tables: Record<string, Row[]> = {
    settle: [{seq: night + 1, kind: 'walk', recorded_at, history_id: `h${night}`, tape_head: ''}],
  }
  const put = (table: string, row: Row) => {
    tables[table] = [...(tables[table] ?? []), row]
  }
  const add = (table: string, minute: number, row: Row, when: Row = {}) => {
    growing.seq += 1
    const observation = {seq: growing.seq, observed_at: stamp(minute), business_date: day, recorded_at}
    put(table, {...row, ...observation, ...when})
  }
  const anySeen = () => seen[random.integer(0, seen.length - 1)]
  /** Calls `work` for random deals, again with this chance each time. */
  const some = (chance: number, work: (deal_id: string) => void) => {
    while (random.chance(chance)) work(`deal_${random.integer(0, DEALS)}`)
  }

  const list = (stream: string, parent_id: string, counts: Row = {}) =>
    put('listing', {...aRow('listing', {stream, parent_id, ...counts}), walk_id, observed_at: stamp(25)})

  if (night === 0) {
    put('mapped_field', {name: 'note', path: '["note"]', type: 'VARCHAR', meaning: '', since: null})
    // Whether any documents were listed is a matter of the lender, not of half the deals.
    for (const deal of ['deal_0', 'deal_1', 'deal_2', 'deal_3', 'deal_4', 'deal_5']) list('document', deal)
  }
  const changed = night === 0 ? DEALS : random.pick([0, 1, 2, 3, 4, 6])
  for (let place = 0; place < changed; place += 1) {
    const isReplay = night > 0 && random.chance(0.2)
    const old = isReplay ? anySeen() : undefined
    const observation = {
      deal_id: old?.deal_id ?? `deal_${night === 0 ? place : random.integer(0, DEALS + 5)}`,
      observed_at: old
        ? old.observed_at.replace(/:00$/, `:${random.integer(10, 59)}`)
        : stamp(random.integer(0, 9)),
      business_date: old?.business_date ?? day,
    }
    seen.push(observation)
    const value = random.pick([undefined, null, '250000.00', '90000.00'])
    const program = random.pick(PROGRAMS)
    const row = aRow('deal_version', {
      status: random.pick(STATUSES),
      loan_amount: `${random.integer(0, 900_000)}.${random.integer(10, 99)}`,
      property_address: random.pick(ADDRESSES),
      ...(value !== undefined && {property_value: value}),
      ...(program !== undefined && {loan_program: program}),
    })
    const kind = night === 0 ? 'seen' : random.pick(['seen', 'seen', 'seen', 'missing', 'vanished'])
    const source = isReplay ? 'replay' : 'list'
    add('deal_version', 0, {...row, walk_id, kind, source}, observation)
  }
  some(0.5, (deal) => {
    // The record was read before another observation of the deal, and stored after it.
    const later = random.chance(0.6) ? anySeen() : undefined
    const readOn = later ? addDays(later.business_date, -random.integer(0, 30)) : day
    put('quarantine', {
      ...aRow('quarantine', {record_id: later?.deal_id ?? random.pick([deal, null])}),
      quarantine_id: `q${night} ${tables.quarantine?.length ?? 0}`,
      observed_at: later ? `${readOn} 00:59:00` : stamp(random.integer(0, 9)),
      business_date: readOn,
      recorded_at: random.pick([recorded_at, recorded_at, null]),
    })
  })
  some(0.4, (deal_id) => add('deal_confirmation', 9, {deal_id}))
  for (const stream of ['borrower', 'document'] as const) {
    some(0.4, (deal_id) => {
      const kind = random.pick(['seen', 'seen', 'missing', 'vanished'])
      const row = aRow(`${stream}_version`, {
        deal_id,
        [`${stream}_id`]: random.pick(['one', 'two']),
        kind,
        walk_id,
      })
      const category = stream === 'document' && {category: random.pick(['appraisal', null, 'other'])}
      add(`${stream}_version`, random.integer(20, 29), {...row, ...category})
    })
    some(0.4, (parent_id) => {
      list(stream, parent_id, {records: random.integer(0, 3), quarantined: random.integer(0, 1)})
    })
  }
  some(0.3, (deal_id) => {
    const value = random.pick(['a', 'b', null])
    add('deal_extra', random.integer(0, 9), {deal_id, name: 'note', value, is_readable: true})
  })
  if (random.chance(0.3)) add('rate', 1, aRow('rate', {rate_date: day}))
  if (night > 0 && random.chance(0.2)) return tables
  if (random.chance(0.3)) put('drift', {...aRow('drift'), walk_id})
  const earlier = random.chance(0.08) ? anySeen() : undefined
  const nobody = {kept_quarantined_deals: 0, kept_missing_deals: 0, adjusted_deals: 0, duplicates: 0}
  const nothing = {kept_quarantined_amount: '0.00', kept_missing_amount: '0.00', adjusted_amount: '0.00'}
  put('walk', {
    ...aRow('walk'),
    ...nobody,
    ...nothing,
    recorded_at,
    walk_id,
    business_date: day,
    started_at: stamp(0),
    // A clock that was set back ends the walk before earlier observations.
    ended_at: earlier ? `${earlier.business_date} 00:30:00` : stamp(10),
    is_complete: night === 0 || random.chance(0.9),
    present_deals: DEALS,
    present_amount: '1.00',
    distinct_records: DEALS,
    amount_total: '1.00',
  })
  return tables
}
