import {randomBytes} from 'node:crypto'
import {z} from 'zod'
import {
  EVENT_TYPES,
  type WebhookEndpoint,
  webhookDeliverySchema,
  webhookEndpointSchema,
} from '../contract/webhook.ts'
import {readTablePage} from './cursor.ts'
import {type Handlers, PREFIX, type ServiceWorld} from './handlers.ts'
import {refuse, requireFound} from './problem-reply.ts'
import {createId, rowCount, rowInstant} from './service-database.ts'

const eventsOfJson = z
  .string()
  .transform((text): unknown => JSON.parse(text))
  .pipe(z.array(z.enum(EVENT_TYPES)))

const row = webhookEndpointSchema.extend({
  events: eventsOfJson,
  created_at: rowInstant,
})

const deliveryRow = webhookDeliverySchema.extend({
  attempts: rowCount,
  last_status: rowCount.nullable(),
  next_attempt_at: rowInstant.nullable(),
  created_at: rowInstant,
})

/** Deliveries with the type of their event. */
const DELIVERIES = `(
  select webhook_delivery.*, event.type as event_type
  from webhook_delivery join event on event.id = webhook_delivery.event_id
)`

function writeEvents(events: WebhookEndpoint['events'] | undefined): string {
  return JSON.stringify([...new Set(events ?? EVENT_TYPES)])
}

/** Creates the operations on webhook endpoints; `onDue` is told when something may have become due. */
export function createWebhookHandlers(world: ServiceWorld, onDue: () => void) {
  const {database, clock} = world
  const requireEndpoint = (id: string): WebhookEndpoint =>
    requireFound(
      database.get(row, 'select * from webhook_endpoint where id = ?', id),
      'webhook_endpoint_not_found',
    )
  return {
    createWebhookEndpoint: ({body}) => {
      const id = createId('whe')
      const secret = `whsec_${randomBytes(32).toString('base64')}`
      const {url, events, description = null} = body
      database.insert('webhook_endpoint', {
        id,
        url,
        events: writeEvents(events),
        description,
        status: 'enabled',
        secret,
        created_at: clock.now(),
      })
      const data = {...requireEndpoint(id), secret}
      return {body: {data}, headers: {Location: `${PREFIX}/webhook-endpoints/${id}`}}
    },
    listWebhookEndpoints: ({query}) => ({
      body: readTablePage(query, {name: 'webhook_endpoint', row}, database),
    }),
    getWebhookEndpoint: ({id}) => ({body: {data: requireEndpoint(id)}}),
    updateWebhookEndpoint: ({id, body}) => {
      const before = requireEndpoint(id)
      const {url = before.url, events = before.events, status = before.status} = body
      const {description = before.description} = body
      const disabled_reason = status === before.status ? before.disabled_reason : null
      database.update('webhook_endpoint', id, {
        url,
        events: writeEvents(events),
        description,
        status,
        disabled_reason,
      })
      database.afterCommit(onDue)
      return {body: {data: requireEndpoint(id)}}
    },
    deleteWebhookEndpoint: ({id}) => {
      requireEndpoint(id)
      database.run('delete from webhook_endpoint where id = ?', id)
      return {body: undefined}
    },
    listWebhookDeliveries: ({id, query}) => {
      requireEndpoint(id)
      const table = {name: DELIVERIES, row: deliveryRow, parent: {endpoint_id: id}}
      return {body: readTablePage(query, table, database)}
    },
    redeliverWebhook: ({id, childId}) => {
      requireEndpoint(id)
      const touched = database.run(
        `update webhook_delivery set status = 'pending', attempts = 0, next_attempt_at = 0
         where id = ? and endpoint_id = ?`,
        childId,
        id,
      )
      const delivery = database.get(deliveryRow, `select * from ${DELIVERIES} where id = ?`, childId)
      if (touched === 0 || !delivery) throw refuse('webhook_delivery_not_found')
      database.afterCommit(onDue)
      return {body: {data: delivery}}
    },
  } satisfies Partial<Handlers>
}
