import type {Config} from '../config.ts'
import {dealStream} from '../contract/deal.ts'
import type {Ledger} from '../ledger/ledger.ts'
import {findDealsToldSince, noteWalkBegun, settleWalkCoverage} from '../ledger/webhook-coverage.ts'
import {findLastAppliedWalk, listChangedIds} from '../load/changed-ids.ts'
import type {World} from '../types.ts'
import type {Database} from '../warehouse/database.ts'

/** Compares what complete walks of deals find with what webhooks had told of. */
export interface WebhookWatch {
  /** A walk begins. */
  begin(walkId: string): void
  /** A walk is planned and about to be applied. */
  settle(db: Database, walkId: string): Promise<void>
}

/**
 * Creates the watch of a run; undefined where no webhooks are taken. Events count for a walk when they were received after
 * the walk before it had begun, looked at or not; the first walk under webhooks only gives the next something to count from.
 */
export function createWebhookWatch(
  ledger: Ledger,
  {webhookSecret}: Pick<Config, 'webhookSecret'>,
  world: World,
): WebhookWatch | undefined {
  if (webhookSecret === undefined) return undefined
  return {
    begin: (walkId) => noteWalkBegun(ledger, walkId, world.realClock.now()),
    async settle(db, walkId) {
      const found = await compare(db, ledger)
      // Before the walk is applied: one that dies in between is settled again by the run that continues it.
      settleWalkCoverage(ledger, walkId, found, world.realClock.now())
      if (found === null) return
      const {changes, missed} = found
      world.log.info({walk_id: walkId, changes, count: missed}, 'changes that no webhook had told of')
    },
  }
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
