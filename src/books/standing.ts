import {z} from 'zod'
import {listProfilesInUse, readTarget} from '../accounting/issued.ts'
import {listAccountRows} from '../accounting/mapping.ts'
import {readMappingVersions} from '../accounting/periods.ts'
import {findJournalProfile} from '../accounting/profiles.ts'
import type {Config} from '../core/config.ts'
import {explainError, newError, tolerate} from '../core/errors.ts'
import {type DataFolder, dataFolderAt} from '../store/data-folder.ts'
import type {Queries} from '../store/database.ts'
import {findCurrentRelease, openRelease, type Release} from '../store/release.ts'
import {readQuery} from '../store/sql.ts'
import {hasStateDb, openStateDb, type StateDb} from '../store/state-db.ts'
import {openHistory} from '../store/warehouse.ts'

/**
 * What was issued or closed from something that the history lacks, because it was restored from an earlier state.
 * @throws ConfigError `JOURNAL_HISTORY` if the history began later and has nothing from before
 */
export async function listLost(stateDb: StateDb, folder: DataFolder): Promise<string[]> {
  const stands = stateDb.all(
    z.object({what: z.string(), history_id: z.string(), known_at: z.string().nullable()}),
    `select 'batch ''' || batch_id || ''' of ' || profile as what, history_id, known_at, batch_no as place
     from journal_batch
     union all
     select 'closed month ' || period, history_id, null, null from closed_period
     order by place nulls last, what`,
  )
  if (stands.length === 0) return []
  await using db = await openHistory(folder)
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

/** It would be booked again. @throws ConfigError `JOURNAL_HISTORY` if the history lacks what batches and closings rest on */
export async function requireSameHistory(stateDb: StateDb, folder: DataFolder): Promise<void> {
  const [first, ...others] = await listLost(stateDb, folder)
  if (first === undefined) return
  const stood = others.length === 0 ? `${first} was` : `${first} and ${others.length} more were`
  throw newError(
    'JOURNAL_HISTORY',
    `The history in '${folder.root}' lacks what ${stood} made from: it was restored from an earlier state.`,
  )
}

/** Why nothing can be issued or closed now; null if something can. */
export const findRefusal = (stateDb: StateDb, folder: DataFolder): Promise<string | null> =>
  requireSameHistory(stateDb, folder).then(
    () => null,
    (error: unknown) => explainError(error).message,
  )

/** What a profile has not been issued of a month's journal: new entries, and booked ones that no longer hold. */
export type NotIssued = z.output<typeof notIssuedRow>
const notIssuedRow = z.object({
  profile: z.string(),
  /** `YYYY-MM` */
  period: z.string(),
  /** Null if the accounts of the current release differ from those of `accounting.json`. */
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
  const profiles = [...new Set([...listProfilesInUse(stateDb), ...journals])].map((profile) => ({
    profile,
    with_opening: readTarget(stateDb, profile).withOpening,
  }))
  if (profiles.length === 0) return []
  // One text: as objects, the entries of a million loans would fill the memory.
  const standing = stateDb.column(
    z.string(),
    `select json_group_array(json_object('profile', profile, 'entry_id', entry_id, 'period', period, 'amount', amount))
     from (
       select profile, entry_id, max(issued_line.period) as period, max(coalesce(debit, credit)) as amount
       from issued_line join journal_batch using (batch_no)
       group by profile, entry_id
       having max(issue_no) % 2 = 0
     )`,
  )
  await using db = await openRelease(release)
  const {as_of} = release.manifest
  if (!(await hasOwnAccounts(db, config, as_of)))
    return profiles.map(({profile}) => ({profile, period: as_of.slice(0, 7), entries: null, amount: null}))
  return await db.all(notIssuedRow, readQuery('not_issued'), [JSON.stringify(profiles), ...standing])
}

/** False if `accounting.json` is unusable. */
async function hasOwnAccounts(db: Queries, config: Config, asOf: string): Promise<boolean> {
  const text = z.string().nullable()
  const row = z.object({
    since: z.string(),
    role: z.string(),
    loan_program: text,
    term: text,
    account_code: text,
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
  const versions = tolerate(['ACCOUNTING_MAPPING'], () => readMappingVersions(config, asOf))
  if (!versions) return false
  const given = listAccountRows(versions).map((each) => row.parse(each))
  return months.every((period) => {
    const [one, other] = [inForce(held, period), inForce(given, period)]
    return [...one, ...other].every((account) => find(one, account) === find(other, account))
  })
}
