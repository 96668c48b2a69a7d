import {z} from 'zod'
import type {StateDb} from '../store/state-db.ts'
import {type AccountMapping, nameAccounts} from './mapping.ts'
import {issuedLineSchema, type JournalProfile, type RenamedAccount} from './profiles.ts'

export type IssuedBatch = z.output<typeof batchRow>
export const batchRow = z.object({
  profile: z.string(),
  batch_id: z.string(),
  /** `YYYY-MM` */
  period: z.string(),
  /** ISO 8601 with microseconds: what was known when the batch was made. */
  known_at: z.string(),
  history_id: z.string(),
})

/** Batches with files, oldest first: all, or those with these values; two profiles may share an id. */
export function listBatches(
  stateDb: StateDb,
  only: {profile?: string; period?: string; batch_id?: string; is_handed_over?: 0} = {},
): IssuedBatch[] {
  const asked = Object.keys(only).map((column) => `and ${column} = ?`)
  return stateDb.all(
    batchRow,
    `select * from journal_batch
     where batch_no in (select batch_no from journal_file) ${asked.join(' ')}
     order by batch_no`,
    Object.values(only),
  )
}

export function markHandedOver(
  stateDb: StateDb,
  {profile, batch_id}: IssuedBatch,
  isHandedOver: boolean,
): void {
  stateDb.update('journal_batch', {profile, batch_id}, {is_handed_over: Number(isHandedOver)})
}

export type BatchLine = z.output<typeof batchLine>
const batchLine = issuedLineSchema.extend({batch_id: z.string()})

/** Lines in the order of issue: all, or those of a month or a batch. */
export const listIssuedLines = (
  stateDb: StateDb,
  profile: string,
  {period = null, batch_id = null}: {period?: string | null; batch_id?: string | null} = {},
): BatchLine[] =>
  stateDb.all(
    batchLine,
    `select batch_id, issued_line.* from issued_line join journal_batch using (batch_no)
     where profile = ?1 and (?2 is null or issued_line.period = ?2) and (?3 is null or batch_id = ?3)
     order by batch_no, issue_no, journal_no, line_no`,
    [profile, period, batch_id],
  )

/** All lines of the deals of which a true-up took something back later than otherwise, in the order of issue. */
export const listTruedUpLines = (stateDb: StateDb, profile: string): BatchLine[] =>
  stateDb.all(
    batchLine,
    // Joined in this order, or all lines are read.
    `select batch_id, line.* from issued_line as line cross join journal_batch using (batch_no)
     where profile = ?1 and deal_id in (
       select deal_id from period_event cross join journal_batch on issued_at = at cross join issued_line using (batch_no)
       where action = 'true-up' and profile = ?1 and event = 'true-up'
     )
     order by batch_no, issue_no, journal_no, line_no`,
    [profile],
  )

/** What was issued under a journal number, to one profile after the other. */
export const listLinesOf = (stateDb: StateDb, journalNo: string) =>
  stateDb.all(
    batchLine.extend({profile: z.string()}),
    `select profile, batch_id, issued_line.* from issued_line join journal_batch using (batch_no)
     where journal_no = ? order by batch_no, line_no`,
    [journalNo],
  )

/** Opening balances belong to all months once the profile has booked any. */
export const hasOpenings = (stateDb: StateDb, profile: string): boolean =>
  stateDb.column(
    z.number(),
    `select 1 from issued_line join journal_batch using (batch_no) where profile = ? and event = 'opening' limit 1`,
    [profile],
  ).length > 0

/** The months of which anything was issued to a profile, oldest first. */
export const listIssuedMonths = (stateDb: StateDb, profile: string): string[] =>
  stateDb.column(
    z.string(),
    `select distinct issued_line.period from issued_line join journal_batch using (batch_no)
     where profile = ? order by issued_line.period`,
    [profile],
  )

/**
 * Of the months from `first` to `last`, the closed ones that are to be issued as they were closed, oldest first. A closed month is
 * what it was closed with until a batch of it is issued after the closing; then, as while it is open, it is the present journal,
 * dated in open months.
 */
export function listAsClosed(
  stateDb: StateDb,
  profile: string,
  {first, last}: {first: string; last: string},
): string[] {
  return stateDb.column(
    z.string(),
    `select period from closed_period as closed
     where period between ? and ? and not exists (
       select 1 from journal_batch
       where profile = ? and period = closed.period and batch_no > closed.after_batch
     )
     order by period`,
    [first, last, profile],
  )
}

/** For an importer that knows accounts by name: accounts that the mapping names differently from the lines handed over last. */
export const listRenamed = (
  stateDb: StateDb,
  {name, looks_up_by}: JournalProfile,
  mapping: AccountMapping,
): RenamedAccount[] =>
  nameAccounts(
    stateDb.all(
      z.object({account_code: z.string(), account_name: z.string(), before: z.string()}),
      `select account_code, account_name, account_name as before, max(batch_no)
       from issued_line join journal_batch using (batch_no)
       where profile = ? and ? = 'name' and is_handed_over group by account_code`,
      [name, looks_up_by],
    ),
    mapping,
  ).filter(({account_name, before}) => account_name !== before)

/** Profiles to which anything was ever issued. */
export function listIssuedProfiles(stateDb: StateDb): string[] {
  return stateDb.column(z.string(), 'select distinct profile from journal_batch order by profile')
}

/**
 * Leaves out a profile that was given up: its last batch is half a year older than the last of any profile. Only to show what is
 * open: closing and true-up go by {@link listIssuedProfiles}.
 */
export function listProfilesInUse(stateDb: StateDb): string[] {
  return stateDb.column(
    z.string(),
    `select profile from journal_batch group by profile
     having date(max(issued_at)) > (select date(max(issued_at), '-6 months') from journal_batch) order by profile`,
  )
}
