import {chmodSync, copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {z} from 'zod'
import {buildRelease, compareBuilds} from '../../src/build/build.ts'
import {readLastBuild} from '../../src/build/build-folder.ts'
import {DEAL_COLUMNS} from '../../src/build/build-tables.ts'
import {
  aBorrower,
  aDocument,
  aDrift,
  aListing,
  aQuarantine,
  aRate,
  aVersion,
  aWalk,
  insertRows,
  type Row,
} from '../../src/build/case-rows.ts'
import {addDays} from '../../src/core/clock.ts'
import {type Config, parseConfig} from '../../src/core/config.ts'
import type {Random} from '../../src/service/portfolio.ts'
import {type DataFolder, dataFolderAt} from '../../src/store/data-folder.ts'
import {type Database, openDatabase, quoteLiteral} from '../../src/store/database.ts'
import {readRelease, readReleaseModels, requireRelease} from '../../src/store/release.ts'
import {migrate} from '../../src/store/warehouse.ts'
import {createDealSet} from '../../src/web/deal-set.ts'
import {createWorldAt} from '../support/data.ts'
import {createTally, type ProofRequest, type Proved, runAll} from './proof.ts'

/** Nights of one run. */
const NIGHTS = 6

const FIRST_DAY = '2026-01-20'
const DEALS = 80

/** The source rows do not tie out to a certificate, so this check is replaced by an empty one. */
const NO_BRIDGE = '-- Says nothing.\n-- severity: error\nselect walk_id from mart.run where false\n'

const STATUSES = [
  'draft',
  'underwriting',
  'approved',
  'funded',
  ' Funded',
  'paid_off',
  'withdrawn',
  'odd',
] as const
const PROGRAMS = ['bridge', 'dscr', null, undefined] as const

/** A growing history: rows by raw table. */
interface Growing {
  random: Random
  seq: number
  day: string
  /** Of every observation so far: deal, day and instant. */
  seen: {deal: string; day: string; at: string}[]
}

/** What one night stores. */
type Night = Record<string, Row[]>

/**
 * Grows random histories night by night, and builds each night from the one before and from nothing: every published table must
 * be the same, byte by byte. Deals change, go missing and come back; records come late, are replayed or stay in quarantine;
 * lists of borrowers and documents change; clocks step back; days pass without a walk; the cache is lost or damaged.
 *
 * A run is one history of several nights.
 */
export async function proveNights({
  nights = NIGHTS,
  ...request
}: ProofRequest & {nights?: number}): Promise<Proved> {
  const tally = createTally()
  await runAll({name: 'nights'}, request, async (_run, random) => {
    const root = mkdtempSync(join(tmpdir(), 'loantape-nights-'))
    try {
      await live(root, {random, nights}, (name) => tally.add(name))
    } finally {
      rmSync(root, {recursive: true, force: true})
    }
  })
  return tally
}

/** A lender's folder whose history grows by one random night at a time. */
export interface GrowingFolder {
  config: Config
  folder: DataFolder
  /** Stores the next night. @returns a world in the night after it */
  grow(): Promise<ReturnType<typeof createWorldAt>>
}

/** Makes a folder below `root` with an empty history. */
export function createGrowingFolder(root: string, random: Random): GrowingFolder {
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
  const env = {
    LOANTAPE_DATA_DIR: folder.root,
    LOANTAPE_SQL_DIR: sqlDir,
    LOANTAPE_RELEASES_KEPT: '2',
  }
  const config: Config = {...parseConfig(env, {readFile: () => ''}), build: 'incremental'}
  const growing: Growing = {random, seq: 0, day: FIRST_DAY, seen: []}
  let night = 0
  return {
    config,
    folder,
    async grow() {
      if (night > 0) growing.day = addDays(growing.day, random.pick([0, 1, 1, 1, 2, 5, 12, 30]))
      await using db = await openDatabase({attach: [{path: folder.warehouse, alias: 'history'}]})
      await migrate(db, 'history')
      await store(db, drawNight(growing, night), random)
      night += 1
      return createWorldAt(`${addDays(growing.day, 1)}T04:00:00Z`)
    },
  }
}

async function live(
  root: string,
  {random, nights}: {random: Random; nights: number},
  note: (name: string) => void,
): Promise<void> {
  const {config, folder, grow} = createGrowingFolder(root, random)
  for (let night = 0; night < nights; night += 1) {
    const world = await grow()
    if (night > 0 && random.chance(0.05)) note(spoilLastBuild(folder, random))
    const before = readLastBuild(folder)
    await compareBuilds(config, {}, world)
    const last = readLastBuild(folder)
    if (last?.release_id === before?.release_id) note('nights with nothing new')
    else note(last && last.rebuilt > 0 ? 'nights from the one before' : 'nights from nothing')
  }
  note(await proveDealSet(root, config, random))
}

/** A set of half the deals of the last release has the same tables as a whole build of a history with only those deals. */
async function proveDealSet(root: string, config: Config, random: Random): Promise<string> {
  const folder = dataFolderAt(config.dataDir)
  const release = requireRelease(folder)
  const models = readReleaseModels(release.dir) ?? []
  // A release opened for readers can reach no other file.
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
    // The last thing stored may concern the other half only.
    {asOf: release.manifest.as_of},
    createWorldAt(`${addDays(release.manifest.as_of, 1)}T04:00:00Z`),
  )
  for (const {name} of names) {
    const [expected, found] = [
      `from read_parquet(${quoteLiteral(join(dir, `${name}.parquet`))})`,
      `from half.${name}`,
    ]
    const rows = await db.all(
      z.object({row: z.string()}),
      `select cast(to_json(t) as varchar) as row
       from (((${expected}) except all (${found})) union all ((${found}) except all (${expected}))) as t limit 2`,
    )
    if (rows.length > 0) throw new Error(`${name} of half the deals differs: ${JSON.stringify(rows)}`)
  }
  return `sets of half the deals, of ${names.length} tables`
}

async function store(db: Database, night: Night, random: Random): Promise<void> {
  for (const [table, rows] of Object.entries(night)) await insertRows(db, table, rows)
  // A history that was undone and grew again is a different one, even if all its rows are the same.
  if (random.chance(0.03)) await db.run(`update history.raw.settle set history_id = history_id || 'x'`)
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

/** One night: a walk, or what webhooks and replays brought between walks. */
function drawNight(growing: Growing, night: number): Night {
  const {random, day} = growing
  const hour = random.integer(1, 4)
  const stamp = (minute: number) => `${day} 0${hour}:${String(minute).padStart(2, '0')}:00`
  const recordedAt = `${addDays(FIRST_DAY, night * 40)} 12:00:00`
  const stored = {recorded_at: recordedAt, walk_id: `walk ${night}`}
  const changed = night === 0 ? DEALS : random.pick([0, 1, 2, 3, 4, 6])
  const tables: Night = {
    settle: [{seq: night + 1, kind: 'walk', recorded_at: recordedAt, history_id: `h${night}`, tape_head: ''}],
    deal_version: [],
    quarantine: [],
    deal_confirmation: [],
    borrower_version: [],
    document_version: [],
    listing: [],
    rate: [],
    drift: [],
    deal_extra: [],
    mapped_field:
      night === 0 ? [{name: 'note', path: '["note"]', type: 'VARCHAR', meaning: '', since: null}] : [],
    walk: [],
  }
  const add = (table: string, row: Row) => {
    growing.seq += 1
    tables[table]?.push({seq: growing.seq, ...row})
  }
  for (let place = 0; place < changed; place += 1) {
    const deal = `deal_${night === 0 ? place : random.integer(0, DEALS + 5)}`
    const isReplay = night > 0 && random.chance(0.2)
    const old = isReplay ? growing.seen[random.integer(0, growing.seen.length - 1)] : undefined
    const observation = {
      deal_id: old?.deal ?? deal,
      observed_at: old ? old.at.replace(/:00$/, `:${random.integer(10, 59)}`) : stamp(random.integer(0, 9)),
      business_date: old?.day ?? day,
    }
    const kind = night === 0 ? 'seen' : random.pick(['seen', 'seen', 'seen', 'missing', 'vanished'])
    const value = random.pick([undefined, null, '250000.00', '90000.00'])
    const program = random.pick(PROGRAMS)
    add('deal_version', {
      ...aVersion({
        status: random.pick(STATUSES),
        loan_amount: `${random.integer(0, 900_000)}.${random.integer(10, 99)}`,
        property_address: random.pick([
          '1 Main St, Austin, TX 78701',
          'nowhere',
          '9  Ocean Ct, Stamford, CT',
        ]),
        ...(value !== undefined && {property_value: value}),
        ...(program !== undefined && {loan_program: program}),
      }),
      ...observation,
      ...stored,
      kind,
      source: isReplay ? 'replay' : 'list',
    })
    growing.seen.push({
      deal: observation.deal_id,
      day: observation.business_date,
      at: observation.observed_at,
    })
  }
  const some = (chance: number, work: (deal: string) => void) => {
    while (random.chance(chance)) work(`deal_${random.integer(0, DEALS)}`)
  }
  some(0.5, (deal) => {
    // Read before something else showed the deal, and stored after that.
    const later = random.chance(0.6) ? growing.seen[random.integer(0, growing.seen.length - 1)] : undefined
    const readOn = later ? addDays(later.day, -random.integer(0, 30)) : day
    tables.quarantine?.push({
      ...aQuarantine({record_id: later?.deal ?? random.pick([deal, null])}),
      quarantine_id: `q${night} ${tables.quarantine.length}`,
      observed_at: later ? `${readOn} 00:59:00` : stamp(random.integer(0, 9)),
      business_date: readOn,
      recorded_at: random.pick([recordedAt, recordedAt, null]),
    })
  })
  some(0.4, (deal) =>
    add('deal_confirmation', {
      deal_id: deal,
      business_date: day,
      recorded_at: recordedAt,
      observed_at: stamp(9),
    }),
  )
  for (const [stream, aRow] of [
    ['borrower', aBorrower],
    ['document', aDocument],
  ] as const) {
    some(0.4, (deal) => {
      const child = random.pick(['one', 'two'])
      add(`${stream}_version`, {
        ...aRow({
          deal_id: deal,
          [`${stream}_id`]: child,
          kind: random.pick(['seen', 'seen', 'missing', 'vanished']),
        }),
        observed_at: stamp(random.integer(20, 29)),
        business_date: day,
        ...stored,
        ...(stream === 'document' && {category: random.pick(['appraisal', null, 'other'])}),
      })
    })
    some(0.4, (deal) =>
      tables.listing?.push({
        ...aListing({
          stream,
          parent_id: deal,
          records: random.integer(0, 3),
          quarantined: random.integer(0, 1),
        }),
        walk_id: `walk ${night}`,
        observed_at: stamp(25),
      }),
    )
  }
  some(0.3, (deal) =>
    add('deal_extra', {
      deal_id: deal,
      name: 'note',
      value: random.pick(['a', 'b', null]),
      is_readable: true,
      observed_at: stamp(random.integer(0, 9)),
      business_date: day,
      recorded_at: recordedAt,
    }),
  )
  if (random.chance(0.3))
    add('rate', {
      ...aRate({rate_date: day}),
      observed_at: stamp(1),
      business_date: day,
      recorded_at: recordedAt,
    })
  const isWalk = night === 0 || random.chance(0.8)
  if (isWalk) {
    const earlier = random.chance(0.08) ? growing.seen[random.integer(0, growing.seen.length - 1)] : undefined
    if (random.chance(0.3)) tables.drift?.push({...aDrift(), walk_id: `walk ${night}`})
    tables.walk?.push({
      ...aWalk(),
      ...stored,
      business_date: day,
      started_at: stamp(0),
      // A clock set back ends a walk before what was already seen.
      ended_at: earlier ? `${earlier.day} 00:30:00` : stamp(10),
      is_complete: night === 0 || random.chance(0.9),
      present_deals: DEALS,
      present_amount: '1.00',
      kept_quarantined_deals: 0,
      kept_quarantined_amount: '0.00',
      kept_missing_deals: 0,
      kept_missing_amount: '0.00',
      adjusted_deals: 0,
      adjusted_amount: '0.00',
      distinct_records: DEALS,
      duplicates: 0,
      amount_total: '1.00',
    })
  }
  return tables
}
