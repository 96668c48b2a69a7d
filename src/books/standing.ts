import {isDeepStrictEqual} from 'node:util'
import {z} from 'zod'
import {hasOpenings, listProfilesInUse} from '../accounting/issued.ts'
import {listAccountRows} from '../accounting/mapping.ts'
import {
  findFirstOpenDay,
  findWalkedUntil,
  lastDayOf,
  listClosedPeriods,
  readMappingVersions,
} from '../accounting/periods.ts'
import {findJournalProfile} from '../accounting/profiles.ts'
import type {Config} from '../core/config.ts'
import {isOfKind, newError, tolerate} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {type DataFolder, dataFolderAt} from '../store/data-folder.ts'
import {findCurrentRelease, openRelease, type Release} from '../store/release.ts'
import {readQuery} from '../store/sql.ts'
import {hasStateDb, openStateDb, type StateDb} from '../store/state-db.ts'
import {openHistory} from '../store/warehouse.ts'

/**
 * What was issued or closed from something that the history lacks, because it was restored from an earlier state.
 * @throws ConfigError `JOURNAL_HISTORY` if the history began later and has nothing from before
 */
export async function listLost(stateDb: StateDb, folder: DataFolder, world: World): Promise<string[]> {
  const stands = stateDb.all(
    z.object({what: z.string(), history_id: z.string(), known_at: z.string().nullable()}),
    `select 'batch ''' || batch_id || ''' of ' || profile as what, history_id, known_at, batch_no as place
     from journal_batch
     union all
     select 'closed month ' || period, history_id, null, null from closed_period
     order by place nulls last, what`,
  )
  if (stands.length === 0) return []
  await using db = await openHistory(folder, world)
  const rows = await db.all(
    z.object({history_id: z.string(), recorded_at: z.string()}),
    `select history_id, strftime(recorded_at, '%Y-%m-%dT%H:%M:%S.%fZ') as recorded_at
     from history.raw.settle order by seq`,
  )
  const held = new Set(rows.map(({history_id}) => history_id))
  const lost = stands.filter(({history_id}) => !held.has(history_id)).map(({what}) => what)
  const latest = stands.findLast(({known_at}) => known_at !== null)
  if (lost.length > 0 && rows[0] && latest?.known_at && latest.known_at < rows[0].recorded_at)
    throw newError(
      'JOURNAL_HISTORY',
      `The history in '${folder.root}' began after ${latest.what} was made: it is another history, whose journal has nothing from before.`,
      {
        next: 'Restore the data folder from a backup (docs/operations.md). Without one, start an empty data folder: its first walk opens the books again.',
      },
    )
  return lost
}

/**
 * Closing takes a walk that saw the end of the month. If that walk is taken back because the clock was ahead, what is booked now
 * would be dated after months to come. @throws ConfigError `PERIOD_STATE`
 */
export async function requireSeenEnd(stateDb: StateDb, folder: DataFolder, world: World): Promise<void> {
  const closed = listClosedPeriods(stateDb).at(-1)
  if (closed === undefined) return
  await using db = await openHistory(folder, world)
  const walkedUntil = await findWalkedUntil(db)
  const end = lastDayOf(closed)
  if (walkedUntil !== null && walkedUntil >= end) return
  throw newError(
    'PERIOD_STATE',
    `Period '${closed}' is closed, but ends on ${end}, and the last complete walk counts for ${walkedUntil ?? 'no day'}.`,
    {
      next: `If it was closed under a clock that was ahead, run \`loantape period reopen ${closed} --why '…'\`; otherwise \`loantape sync\`.`,
    },
  )
}

/**
 * It would be booked again. @throws ConfigError `JOURNAL_HISTORY` if the history lacks what batches and closings rest on; as
 * {@link requireSeenEnd}
 */
export async function requireSameHistory(stateDb: StateDb, folder: DataFolder, world: World): Promise<void> {
  await requireSeenEnd(stateDb, folder, world)
  const [first, ...others] = await listLost(stateDb, folder, world)
  if (first === undefined) return
  const stood = others.length === 0 ? `${first} was` : `${first} and ${others.length} more were`
  throw newError(
    'JOURNAL_HISTORY',
    `The history in '${folder.root}' lacks what ${stood} made from: it was restored from an earlier state.`,
  )
}

/** Why nothing can be issued or closed now; null if something can. */
export const findRefusal = (stateDb: StateDb, folder: DataFolder, world: World): Promise<string | null> =>
  requireSameHistory(stateDb, folder, world).then(
    () => null,
    (error: unknown) => {
      if (isOfKind(error, 'config')) return error.message
      throw error
    },
  )

/** What a profile has not been issued of a month's journal: entries that are new, no longer hold or are dated later. */
export type NotIssued = z.output<typeof notIssuedRow>
const notIssuedRow = z.object({
  profile: z.string(),
  /** `YYYY-MM` */
  period: z.string(),
  /** Null if the accounts of the current release differ from those of `accounting.json`, or it moves no balances yet. */
  entries: z.coerce.number().nullable(),
  /** The sum of the entries' debits. */
  amount: z.string().nullable(),
})

/**
 * By profile and month, closed ones too: the journal of a release, by default the current one, against the entries that stand,
 * for the profiles that jobs `exported` or that are in use. Builds nothing.
 */
export async function listNotIssued(
  config: Config,
  exported: readonly string[],
  given?: Release,
): Promise<NotIssued[]> {
  const folder = dataFolderAt(config.dataDir)
  const release = given ?? findCurrentRelease(folder)
  if (!release || !hasStateDb(folder)) return []
  using stateDb = openStateDb(folder.stateDb)
  const journals = exported.filter((name) => findJournalProfile(name))
  const profiles = [...new Set([...listProfilesInUse(stateDb), ...journals])]
  if (profiles.length === 0) return []
  const {as_of} = release.manifest
  if (!(await hasOwnAccounts(release, config)))
    return profiles.map((profile) => ({profile, period: as_of.slice(0, 7), entries: null, amount: null}))
  return await compareIssued(stateDb, release, profiles)
}

/** As {@link listNotIssued}. `withOpening`: opening balances count as booked, even if none was. */
export async function compareIssued(
  stateDb: StateDb,
  release: Release,
  profiles: readonly string[],
  {withOpening = false} = {},
): Promise<NotIssued[]> {
  await using db = await openRelease(release)
  const columns = ['profile', 'entry_id', 'issue_no', 'entry_date', 'event', 'period', 'amount']
  await db.run(`create temp table issued (${columns.join(' varchar, ')} decimal(18, 2))`)
  // As texts, since as objects the entries of a million loans would fill the memory; in parts, since a text can be too long.
  const parts = stateDb.all(
    z.object({first: z.number(), last: z.number()}),
    `select min(batch_no) as first, max(batch_no) as last
     from (select batch_no, sum(count(*)) over (order by batch_no) / ${PART_LINES} as part from issued_line group by batch_no)
     group by part order by part`,
  )
  for (const {first, last} of parts) {
    const [lines = '[]'] = stateDb.column(
      z.string(),
      `select json_group_array(json_array(profile, entry_id, issue_no, entry_date, event, line.period, coalesce(debit, credit)))
       from issued_line as line join journal_batch using (batch_no)
       where batch_no between ? and ? and line_no = 1 and profile in (select value from json_each(?))`,
      [first, last, JSON.stringify(profiles)],
    )
    const fields = columns.map((_name, index) => `line ->> ${index}`)
    await db.run(
      `insert into issued select ${fields.join(', ')} from (select unnest(from_json($1, '["json"]')) as line)`,
      [lines],
    )
  }
  const asked = profiles.map((profile) => ({
    profile,
    with_opening: withOpening || hasOpenings(stateDb, profile),
  }))
  return await db.all(notIssuedRow, readQuery('not_issued'), [
    JSON.stringify(asked),
    findFirstOpenDay(stateDb),
  ])
}

/** A batch is in one part. */
const PART_LINES = 1_000_000

/** False if `accounting.json` is unusable. */
async function hasOwnAccounts(release: Release, config: Config): Promise<boolean> {
  await using db = await openRelease(release)
  const text = z.string().nullable()
  const row = z.object({
    since: z.string(),
    role: z.string(),
    loan_program: text,
    term: text,
    account_code: text,
    moves_balances: z.coerce.string(),
  })
  const held = await db.all(row, 'from seed.account')
  const months = await db.column(
    z.string(),
    'select distinct period from (from accounting.journal_line union all by name from accounting.opening_line)',
  )
  type Row = z.output<typeof row>
  const inForce = (rows: readonly Row[], period: string) => {
    const last = rows.map(({since}) => since).reduce((a, b) => (b <= period && b > a ? b : a), '')
    return rows.filter(({since}) => since === last)
  }
  const find = (rows: readonly Row[], {role, loan_program, term}: Row) => {
    const own = rows.filter((one) => one.role === role && one.term === term)
    const named = own.find((one) => one.loan_program === loan_program)
    return (named ?? own.find((one) => one.loan_program === '*'))?.account_code
  }
  const versions = tolerate(['ACCOUNTING_MAPPING'], () => readMappingVersions(config, release.manifest.as_of))
  if (!versions) return false
  const given = listAccountRows(versions).map((each) => row.parse(each))
  const movesOf = (rows: readonly Row[]) =>
    new Set(rows.flatMap(({since, moves_balances}) => (moves_balances === 'true' ? since : [])))
  if (!isDeepStrictEqual(movesOf(held), movesOf(given))) return false
  return months.every((period) => {
    const [one, other] = [inForce(held, period), inForce(given, period)]
    return [...one, ...other].every((account) => find(one, account) === find(other, account))
  })
}
