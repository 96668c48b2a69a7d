import {z} from 'zod'
import {endpointsOf, noBodySchema} from './endpoint.ts'
import {pageQuerySchema} from './list.ts'
import {instantField, textField} from './stream.ts'

export const EVENT_TYPES = [
  'deal.created',
  'deal.updated',
  'deal.deleted',
  'document.uploaded',
  'task.completed',
] as const

export type EventType = (typeof EVENT_TYPES)[number]

const newWebhookEndpointSchema = z
  .strictObject({
    url: z
      .url({protocol: /^https?$/, error: 'expected an https URL'})
      .max(2000)
      .meta({pattern: '^[hH][tT][tT][pP][sS]?://'}),
    /** Default: every type. */
    events: z.array(z.enum(EVENT_TYPES)).min(1).max(EVENT_TYPES.length).optional(),
    description: textField(200).nullish(),
  })
  .meta({id: 'NewWebhookEndpoint'})

const webhookEndpointChangesSchema = newWebhookEndpointSchema
  .extend({status: z.enum(['enabled', 'disabled'])})
  .partial()
  .refine((body) => Object.keys(body).length > 0, {message: 'expected at least one field to change'})
  .meta({id: 'WebhookEndpointChanges', minProperties: 1})

/** `disabled_reason` is set if the service disabled it. */
export type WebhookEndpoint = z.output<typeof webhookEndpointSchema>
export const webhookEndpointSchema = z
  .object({
    id: z.string(),
    url: z.string(),
    events: z.array(z.enum(EVENT_TYPES)),
    description: z.string().nullable(),
    status: z.enum(['enabled', 'disabled']),
    disabled_reason: z.string().nullable(),
    created_at: instantField,
  })
  .meta({id: 'WebhookEndpoint'})

/** `secret` signs its notifications; returned once, on creation. */
export type CreatedWebhookEndpoint = z.output<typeof createdWebhookEndpointSchema>
const createdWebhookEndpointSchema = webhookEndpointSchema
  .extend({secret: z.string()})
  .meta({id: 'CreatedWebhookEndpoint'})

export type WebhookDelivery = z.output<typeof webhookDeliverySchema>
export const webhookDeliverySchema = z
  .object({
    id: z.string(),
    event_id: z.string(),
    event_type: z.enum(EVENT_TYPES),
    status: z.enum(['pending', 'delivered', 'failed']),
    attempts: z.number().int(),
    /** Of the last answer; null if there was none. */
    last_status: z.number().int().nullable(),
    last_error: z.string().nullable(),
    next_attempt_at: instantField.nullable(),
    created_at: instantField,
  })
  .meta({id: 'WebhookDelivery'})

/** Never holds personal data. Receivers fetch the rest by id. */
export type WebhookEvent = z.output<typeof webhookEventSchema>
export const webhookEventSchema = z
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

const {get, list, post, patch, remove} = endpointsOf('Webhooks')
const all = '/webhook-endpoints'
const one = `${all}/{id}`
const deliveries = `${one}/deliveries`

export const webhookEndpoints = {
  createWebhookEndpoint: post(
    all,
    'Register an endpoint for notifications; only this answer shows its secret',
    newWebhookEndpointSchema,
    createdWebhookEndpointSchema,
    {headers: ['Location']},
  ),
  listWebhookEndpoints: list(all, 'List the registered endpoints', pageQuerySchema, webhookEndpointSchema),
  getWebhookEndpoint: get(one, 'Retrieve an endpoint', webhookEndpointSchema),
  updateWebhookEndpoint: patch(
    one,
    'Change an endpoint, or enable it again',
    webhookEndpointChangesSchema,
    webhookEndpointSchema,
  ),
  deleteWebhookEndpoint: remove(one, 'Remove an endpoint with its deliveries'),
  listWebhookDeliveries: list(
    deliveries,
    'List the notifications to an endpoint with their outcome',
    pageQuerySchema,
    webhookDeliverySchema,
  ),
  redeliverWebhook: post(
    `${deliveries}/{delivery_id}/redeliver`,
    'Send a notification again',
    noBodySchema,
    webhookDeliverySchema,
    {status: 202, problems: ['webhook_endpoint_disabled']},
  ),
}
