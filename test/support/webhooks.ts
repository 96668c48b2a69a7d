import {randomUUID} from 'node:crypto'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {listWaitingEvents, storeEvent} from '../../src/sync/webhook-events.ts'

/** Receives webhooks saying that these deals changed. */
export function receiveEvents({stateDb}: DataFolder, ...dealIds: string[]): void {
  using db = openStateDb(stateDb)
  for (const dealId of dealIds)
    storeEvent(db, {eventId: `evt_${randomUUID()}`, type: 'deal.updated', dealId}, Date.now())
}

/** How many events wait to be applied. */
export function countWaitingEvents({stateDb}: DataFolder): number {
  using db = openStateDb(stateDb)
  return listWaitingEvents(db).length
}
