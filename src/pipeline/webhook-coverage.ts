import {dealStream} from '../contract/deal.ts'
import type {Ledger} from '../ledger/ledger.ts'
import {findDealsToldSince, settleWalkCoverage} from '../ledger/webhook-coverage.ts'
import {findLastAppliedWalk, listChangedIds} from '../load/changed-ids.ts'
import type {World} from '../types.ts'
import type {Database} from '../warehouse/database.ts'

/**
 * Compares what a planned walk of deals found with what webhooks had told of. Events count for a walk when they were received
 * after the walk before it had begun, looked at or not; the first walk under webhooks only gives the next something to count from.
 * The walk is not applied yet: if the run dies now, the run that continues it counts again.
 */
export async function settleCoverage(
  db: Database,
  ledger: Ledger,
  {walkId}: {walkId: string},
  {realClock, log}: World,
): Promise<void> {
  const found = await compare(db, ledger)
  settleWalkCoverage(ledger, walkId, found, realClock.now())
  if (found === null) return
  log.info(
    {walk_id: walkId, changes: found.changes, count: found.missed},
    'changes that no webhook had told of',
  )
}

async function compare(db: Database, ledger: Ledger): Promise<{changes: number; missed: number} | null> {
  const before = await findLastAppliedWalk(db, dealStream)
  const told = before === null ? undefined : findDealsToldSince(ledger, before)
  if (!told) return null
  const found = {changes: 0, missed: 0}
  for await (const id of listChangedIds(db, dealStream)) {
    found.changes += 1
    if (!told.has(id)) found.missed += 1
  }
  return found
}
