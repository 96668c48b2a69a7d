import {DECIMAL, VARCHAR} from '@duckdb/node-api'
import {z} from 'zod'
import {listIssuedProfiles, listStandingEntries} from '../accounting/issued.ts'
import {findJournalProfile} from '../accounting/journal-profiles.ts'
import {parseCents} from '../money.ts'
import {findCurrentRelease} from '../release/manifest.ts'
import {openRelease} from '../release/open-release.ts'
import {hasStateDb, openStateDb, type StateDb} from '../state/state-db.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import type {Database} from '../warehouse/database.ts'
import {appendRows} from '../warehouse/row-buffer.ts'

/** What of a month's journal a profile has not been handed out: new entries, and booked ones that no longer hold. */
export type NotIssued = z.output<typeof rowSchema> & {profile: string}
const rowSchema = z.object({
  /** `YYYY-MM` */
  period: z.string(),
  entries: z.coerce.number(),
  /** Sum of their debits. */
  amount: z.string(),
})

/**
 * What has not been issued yet, by profile and month, closed months among them: the journal of the current release against
 * the state database. Builds nothing.
 *
 * @param exported the profiles that jobs export; those that something was ever issued to count, too
 */
export async function listNotIssued(folder: DataFolder, exported: readonly string[]): Promise<NotIssued[]> {
  const release = findCurrentRelease(folder)
  if (!release || !hasStateDb(folder)) return []
  using stateDb = openStateDb(folder.stateDb)
  const journals = exported.filter((name) => findJournalProfile(name))
  const profiles = [...new Set([...listIssuedProfiles(stateDb), ...journals])].sort()
  if (profiles.length === 0) return []
  await using db = await openRelease(release)
  const found: NotIssued[] = []
  for (const profile of profiles) {
    const rows = await compareProfile(db, stateDb, profile)
    found.push(...rows.map((row) => ({profile, ...row})))
  }
  return found
}

async function compareProfile(db: Database, stateDb: StateDb, profile: string) {
  const standing = listStandingEntries(stateDb, profile)
  await db.run(
    'create or replace table memory.main.standing (entry_id varchar, period varchar, amount decimal(18, 2))',
  )
  await appendRows(
    db,
    {catalog: 'memory', schema: 'main', table: 'standing', types: [VARCHAR, VARCHAR, DECIMAL(18, 2)]},
    standing.map(({entry_id, period, amount}) => [entry_id, period, BigInt(parseCents(amount))]),
  )
  const openings = standing.some(({event}) => event === 'opening')
    ? 'union all select entry_id, period, debit from accounting.opening_line where line_no = 1'
    : ''
  return await db.all(
    rowSchema,
    `with journal as (
       select entry_id, period, debit as amount from accounting.journal_line where line_no = 1 ${openings}
     ),
     open as (
       select * from journal anti join memory.main.standing using (entry_id)
       union all
       select * from memory.main.standing anti join journal using (entry_id)
     )
     select period, count(*) as entries, cast(sum(amount) as decimal(38, 2)) as amount
     from open
     group by period
     order by period`,
  )
}
