import {z} from 'zod'
import {instantField, textField} from './fields.ts'

/** What notifications are sent for. */
export const EVENT_TYPES = [
  'deal.created',
  'deal.updated',
  'deal.deleted',
  'document.uploaded',
  'task.completed',
] as const

/** A type of {@link EVENT_TYPES}. */
export type EventType = (typeof EVENT_TYPES)[number]

/** The body of a notification: ids and statuses only, never personal data; the rest is asked for with the ids. */
export interface WebhookEvent {
  type: EventType
  timestamp: string
  data: {id: string; deal_id: string; status?: string | undefined; category?: string | undefined}
}

/** A body of `POST /webhook-endpoints`. */
export interface NewWebhookEndpoint {
  url: string
  /** Default: every type. */
  events?: EventType[] | undefined
  description?: string | null | undefined
}

/** A body of `PATCH /webhook-endpoints/{id}`. */
export type WebhookEndpointChanges = {
  [Field in keyof NewWebhookEndpoint]?: NewWebhookEndpoint[Field] | undefined
} & {
  status?: 'enabled' | 'disabled' | undefined
}

/** A registered endpoint; `disabled_reason` says why it was disabled, when the service did it. */
export interface WebhookEndpoint {
  id: string
  url: string
  events: EventType[]
  description: string | null
  status: 'enabled' | 'disabled'
  disabled_reason: string | null
  created_at: string
}

/** An endpoint with the secret its notifications are signed with; returned once, on creation. */
export interface CreatedWebhookEndpoint extends WebhookEndpoint {
  secret: string
}

/** One notification to one endpoint. */
export interface WebhookDelivery {
  id: string
  event_id: string
  event_type: EventType
  status: 'pending' | 'delivered' | 'failed'
  attempts: number
  /** Of the answer to the last attempt; null when there was none. */
  last_status: number | null
  last_error: string | null
  next_attempt_at: string | null
  created_at: string
}

const endpointFields = {
  url: z
    .url({protocol: /^https?$/, error: 'expected an https URL'})
    .max(2000)
    .meta({pattern: '^[hH][tT][tT][pP][sS]?://'}),
  events: z.array(z.enum(EVENT_TYPES)).min(1).max(EVENT_TYPES.length).optional(),
  description: textField(200).nullish(),
}

/** The schema of {@link NewWebhookEndpoint}. */
export const newWebhookEndpointSchema: z.ZodType<NewWebhookEndpoint> = z
  .strictObject(endpointFields)
  .meta({id: 'NewWebhookEndpoint'})

/** The schema of {@link WebhookEndpointChanges}. */
export const webhookEndpointChangesSchema: z.ZodType<WebhookEndpointChanges> = z
  .strictObject({
    ...endpointFields,
    url: endpointFields.url.optional(),
    status: z.enum(['enabled', 'disabled']).optional(),
  })
  .refine((body) => Object.keys(body).length > 0, {message: 'expected at least one field to change'})
  .meta({id: 'WebhookEndpointChanges', minProperties: 1})

const endpointRecordFields = {
  id: z.string(),
  url: z.string(),
  events: z.array(z.enum(EVENT_TYPES)),
  description: z.string().nullable(),
  status: z.enum(['enabled', 'disabled']),
  disabled_reason: z.string().nullable(),
  created_at: instantField,
}

/** The schema of {@link WebhookEndpoint}. */
export const webhookEndpointSchema: z.ZodType<WebhookEndpoint> = z
  .object(endpointRecordFields)
  .meta({id: 'WebhookEndpoint'})

/** The schema of {@link CreatedWebhookEndpoint}. */
export const createdWebhookEndpointSchema: z.ZodType<CreatedWebhookEndpoint> = z
  .object({...endpointRecordFields, secret: z.string()})
  .meta({id: 'CreatedWebhookEndpoint'})

/** The schema of {@link WebhookDelivery}. */
export const webhookDeliverySchema: z.ZodType<WebhookDelivery> = z
  .object({
    id: z.string(),
    event_id: z.string(),
    event_type: z.enum(EVENT_TYPES),
    status: z.enum(['pending', 'delivered', 'failed']),
    attempts: z.number().int(),
    last_status: z.number().int().nullable(),
    last_error: z.string().nullable(),
    next_attempt_at: instantField.nullable(),
    created_at: instantField,
  })
  .meta({id: 'WebhookDelivery'})

/** The schema of {@link WebhookEvent}. */
export const webhookEventSchema: z.ZodType<WebhookEvent> = z
  .object({
    type: z.enum(EVENT_TYPES),
    timestamp: instantField,
    data: z.object({
      id: z.string(),
      deal_id: z.string(),
      status: z.string().optional(),
      category: z.string().optional(),
    }),
  })
  .meta({id: 'WebhookEvent'})
