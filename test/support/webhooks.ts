import {randomUUID} from 'node:crypto'
import {Webhook} from 'standardwebhooks'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {listWaitingEvents, storeEvent} from '../../src/sync/webhook-events.ts'

/** Stores webhook events saying that these deals changed. */
export function receiveEvents({stateDb}: DataFolder, ...dealIds: string[]): void {
  using db = openStateDb(stateDb)
  for (const dealId of dealIds)
    storeEvent(db, {eventId: `evt_${randomUUID()}`, type: 'deal.updated', dealId}, Date.now())
}

export const signEvent = (secret: string, id: string, body: string, at = new Date()) => ({
  'content-type': 'application/json',
  'webhook-id': id,
  'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
  'webhook-signature': new Webhook(secret).sign(id, at, body),
})

export function countWaitingEvents({stateDb}: DataFolder): number {
  using db = openStateDb(stateDb)
  return listWaitingEvents(db).length
}
