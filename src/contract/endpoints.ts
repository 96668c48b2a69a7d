import type {Readable} from 'node:stream'
import {z} from 'zod'
import {borrowerSchema, newBorrowerSchema} from './borrower.ts'
import {
  dealChangesSchema,
  dealQuerySchema,
  dealRecordSchema,
  listedDealSchema,
  newDealSchema,
} from './deal.ts'
import {
  documentGenerationSchema,
  documentSchema,
  newDocumentGenerationSchema,
  newDocumentSchema,
} from './document.ts'
import {type ListBody, noQuerySchema, pageQuerySchema} from './list.ts'
import {
  newRateSchema,
  newTaskSchema,
  portfolioReportSchema,
  rateQuerySchema,
  rateSchema,
  taskSchema,
} from './other-records.ts'
import type {ProblemCode} from './problem.ts'
import {
  createdWebhookEndpointSchema,
  newWebhookEndpointSchema,
  webhookDeliverySchema,
  webhookEndpointChangesSchema,
  webhookEndpointSchema,
} from './webhook.ts'

/** One endpoint: source of the service's routes, its parsing, its description and the client. */
export interface Endpoint<Op extends Operation = Operation> {
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** Relative to the base URL: `/deals/{id}`. */
  path: string
  tag: string
  summary: string
  query: z.ZodType<Op['query']>
  body: z.ZodType<Op['body']>
  /** The body is JSON by default. */
  isMultipart?: true
  /** Of a successful answer. */
  status: 200 | 201 | 202 | 204
  /** What `data` holds, one or a list; null if the answer is not JSON. */
  record: z.ZodType | null
  isList?: true
  /** Whether the answer carries an ETag. */
  hasEtag?: true
  /** The problems of this endpoint alone; {@link problemsOf} adds the common ones. */
  problems: readonly ProblemCode[]
}

/** 1 to 255 printable characters, no space at either end, where HTTP would drop it. */
export const IDEMPOTENCY_KEY = /^[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?$/

/** The body of an endpoint without one: nothing, or an empty object. */
export const noBodySchema = z
  .strictObject({})
  .optional()
  .transform(() => undefined)

const NOT_FOUND: readonly (readonly [path: string, code: ProblemCode])[] = [
  ['/deals/{id}', 'deal_not_found'],
  ['/deals/{id}/documents/{document_id}', 'document_not_found'],
  ['/deals/{id}/document-generations/{generation_id}', 'document_generation_not_found'],
  ['/tasks/{id}', 'task_not_found'],
  ['/webhook-endpoints/{id}', 'webhook_endpoint_not_found'],
  ['/webhook-endpoints/{id}/deliveries/{delivery_id}', 'webhook_delivery_not_found'],
]

/** All problems an endpoint may answer with. */
export function problemsOf(endpoint: Endpoint): ProblemCode[] {
  const {method, path, isMultipart, isList} = endpoint
  const codes: ProblemCode[] = [
    'malformed_url',
    'invalid_parameter',
    'unauthorized',
    'invalid_token',
    'insufficient_scope',
    'url_too_long',
    'rate_limited',
    'internal',
  ]
  if (isList) codes.push('invalid_cursor')
  if (method !== 'GET') {
    codes.push('invalid_body', 'malformed_body', 'body_too_large', 'unsupported_media_type')
    if (!isMultipart) codes.push('malformed_json')
  }
  if (method === 'POST') codes.push('invalid_idempotency_key', 'idempotency_key_reused')
  const missing = NOT_FOUND.filter(([start]) => path.startsWith(start)).map(([, code]) => code)
  return [...new Set([...codes, ...missing, ...endpoint.problems])]
}

const get = {method: 'GET', query: noQuerySchema, body: noBodySchema, status: 200, problems: []} as const
const list = {...get, query: pageQuerySchema, isList: true} as const
const post = {method: 'POST', query: noQuerySchema, status: 201, problems: []} as const
const patch = {method: 'PATCH', query: noQuerySchema, status: 200, problems: []} as const
const remove = {
  method: 'DELETE',
  query: noQuerySchema,
  body: noBodySchema,
  status: 204,
  record: null,
  problems: [],
} as const

const described = {
  listDeals: {
    ...list,
    path: '/deals',
    tag: 'Deals',
    summary: 'List deals, oldest first',
    query: dealQuerySchema,
    record: listedDealSchema,
  },
  createDeal: {
    ...post,
    path: '/deals',
    tag: 'Deals',
    summary: 'Create a deal as a draft',
    body: newDealSchema,
    record: dealRecordSchema,
    hasEtag: true,
  },
  getDeal: {
    ...get,
    path: '/deals/{id}',
    tag: 'Deals',
    summary: 'Retrieve a deal',
    record: dealRecordSchema,
    hasEtag: true,
  },
  updateDeal: {
    ...patch,
    path: '/deals/{id}',
    tag: 'Deals',
    summary: 'Change the fields that are sent, the status among them',
    body: dealChangesSchema,
    record: dealRecordSchema,
    hasEtag: true,
    problems: ['invalid_transition', 'incomplete_deal', 'precondition_failed'],
  },
  deleteDeal: {
    ...remove,
    path: '/deals/{id}',
    tag: 'Deals',
    summary: 'Delete a deal with everything linked to it',
    problems: ['deal_funded', 'precondition_failed'],
  },
  linkBorrower: {
    ...post,
    path: '/deals/{id}/borrowers',
    tag: 'Borrowers',
    summary: 'Link a borrower to a deal',
    body: newBorrowerSchema,
    record: borrowerSchema,
  },
  listBorrowers: {
    ...list,
    path: '/deals/{id}/borrowers',
    tag: 'Borrowers',
    summary: 'List the borrowers of a deal',
    record: borrowerSchema,
  },
  uploadDocument: {
    ...post,
    path: '/deals/{id}/documents',
    tag: 'Documents',
    summary: 'Upload a document to a deal',
    body: newDocumentSchema,
    isMultipart: true,
    record: documentSchema,
    problems: ['too_many_documents', 'unsupported_file_type'],
  },
  listDocuments: {
    ...list,
    path: '/deals/{id}/documents',
    tag: 'Documents',
    summary: 'List the documents of a deal',
    record: documentSchema,
  },
  getDocument: {
    ...get,
    path: '/deals/{id}/documents/{document_id}',
    tag: 'Documents',
    summary: 'Retrieve the metadata of a document',
    record: documentSchema,
  },
  downloadDocument: {
    ...get,
    path: '/deals/{id}/documents/{document_id}/content',
    tag: 'Documents',
    summary: "Download a document's file",
    record: null,
  },
  createTask: {
    ...post,
    path: '/deals/{id}/tasks',
    tag: 'Tasks',
    summary: 'Create a task on a deal',
    body: newTaskSchema,
    record: taskSchema,
  },
  listTasks: {
    ...list,
    path: '/deals/{id}/tasks',
    tag: 'Tasks',
    summary: 'List the tasks of a deal',
    record: taskSchema,
  },
  completeTask: {
    ...post,
    path: '/tasks/{id}/complete',
    tag: 'Tasks',
    summary: 'Complete a task; doing so again changes nothing',
    body: noBodySchema,
    status: 200,
    record: taskSchema,
  },
  requestDocumentGeneration: {
    ...post,
    path: '/deals/{id}/document-generations',
    tag: 'Document generation',
    summary: 'Request a document made from a template; it is attached to the deal when ready',
    body: newDocumentGenerationSchema,
    status: 202,
    record: documentGenerationSchema,
  },
  listDocumentGenerations: {
    ...list,
    path: '/deals/{id}/document-generations',
    tag: 'Document generation',
    summary: 'List the document generations of a deal',
    record: documentGenerationSchema,
  },
  getDocumentGeneration: {
    ...get,
    path: '/deals/{id}/document-generations/{generation_id}',
    tag: 'Document generation',
    summary: 'Retrieve a document generation',
    record: documentGenerationSchema,
  },
  pushRate: {
    ...post,
    path: '/rates',
    tag: 'Rates',
    summary: 'Push a pricing update',
    body: newRateSchema,
    record: rateSchema,
  },
  listRates: {
    ...list,
    path: '/rates',
    tag: 'Rates',
    summary: 'List pricing updates, oldest first: the whole history, or the rates in force',
    query: rateQuerySchema,
    record: rateSchema,
  },
  getPortfolioReport: {
    ...get,
    path: '/reports/portfolio',
    tag: 'Reports',
    summary: 'Total the portfolio by status',
    record: portfolioReportSchema,
  },
  createWebhookEndpoint: {
    ...post,
    path: '/webhook-endpoints',
    tag: 'Webhooks',
    summary: 'Register an endpoint for notifications; only this answer shows its secret',
    body: newWebhookEndpointSchema,
    record: createdWebhookEndpointSchema,
  },
  listWebhookEndpoints: {
    ...list,
    path: '/webhook-endpoints',
    tag: 'Webhooks',
    summary: 'List the registered endpoints',
    record: webhookEndpointSchema,
  },
  getWebhookEndpoint: {
    ...get,
    path: '/webhook-endpoints/{id}',
    tag: 'Webhooks',
    summary: 'Retrieve an endpoint',
    record: webhookEndpointSchema,
  },
  updateWebhookEndpoint: {
    ...patch,
    path: '/webhook-endpoints/{id}',
    tag: 'Webhooks',
    summary: 'Change an endpoint, or enable it again',
    body: webhookEndpointChangesSchema,
    record: webhookEndpointSchema,
  },
  deleteWebhookEndpoint: {
    ...remove,
    path: '/webhook-endpoints/{id}',
    tag: 'Webhooks',
    summary: 'Remove an endpoint with its deliveries',
  },
  listWebhookDeliveries: {
    ...list,
    path: '/webhook-endpoints/{id}/deliveries',
    tag: 'Webhooks',
    summary: 'List the notifications to an endpoint with their outcome',
    record: webhookDeliverySchema,
  },
  redeliverWebhook: {
    ...post,
    path: '/webhook-endpoints/{id}/deliveries/{delivery_id}/redeliver',
    tag: 'Webhooks',
    summary: 'Send a notification again',
    body: noBodySchema,
    status: 202,
    record: webhookDeliverySchema,
  },
} satisfies Record<string, Endpoint>

/** Every endpoint of the API. */
export const ENDPOINTS: {[Id in OperationId]: Endpoint<Operations[Id]>} = described

/** The parsed input and the answer of an operation. */
export interface Operation {
  query: object
  body: unknown
  answer: unknown
}

/** A record is in `data`, alone or as a list; without one the answer is empty or a file. */
type AnswerOf<E extends Endpoint> = E extends {record: infer Schema extends z.ZodType}
  ? E extends {isList: true}
    ? ListBody<z.output<Schema>>
    : {data: z.output<Schema>}
  : E extends {status: 204}
    ? undefined
    : Readable

/** The operation of an endpoint. */
export interface OperationOf<E extends Endpoint> extends Operation {
  query: z.output<E['query']>
  body: z.output<E['body']>
  answer: AnswerOf<E>
}

/** Every operation of the API by its id. */
export type Operations = {[Id in OperationId]: OperationOf<(typeof described)[Id]>}

/** The id of an operation. */
export type OperationId = keyof typeof described
