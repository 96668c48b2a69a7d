import {borrowerSchema, newBorrowerSchema} from './borrower.ts'
import {
  dealChangesSchema,
  dealQuerySchema,
  dealRecordSchema,
  listedDealSchema,
  newDealSchema,
} from './deal-record.ts'
import {
  documentGenerationSchema,
  documentSchema,
  newDocumentGenerationSchema,
  newDocumentSchema,
} from './document.ts'
import {type Endpoint, noBodySchema} from './endpoint.ts'
import type {OperationId, Operations} from './operations.ts'
import {noQuerySchema, pageQuerySchema} from './page.ts'
import {newRateSchema, rateQuerySchema, rateSchema} from './rate.ts'
import {portfolioReportSchema} from './report.ts'
import {newTaskSchema, taskSchema} from './task.ts'
import {
  createdWebhookEndpointSchema,
  newWebhookEndpointSchema,
  webhookDeliverySchema,
  webhookEndpointChangesSchema,
  webhookEndpointSchema,
} from './webhook.ts'

const get = {method: 'GET', query: noQuerySchema, body: noBodySchema, status: 200, problems: []} as const
const list = {...get, query: pageQuerySchema, isList: true} as const
const post = {method: 'POST', query: noQuerySchema, status: 201, problems: []} as const
const patch = {method: 'PATCH', query: noQuerySchema, status: 200} as const
const remove = {
  method: 'DELETE',
  query: noQuerySchema,
  body: noBodySchema,
  status: 204,
  record: null,
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
    problems: ['deal_not_found'],
  },
  updateDeal: {
    ...patch,
    path: '/deals/{id}',
    tag: 'Deals',
    summary: 'Change the fields that are sent, the status among them',
    body: dealChangesSchema,
    record: dealRecordSchema,
    hasEtag: true,
    problems: ['deal_not_found', 'invalid_transition', 'incomplete_deal', 'precondition_failed'],
  },
  deleteDeal: {
    ...remove,
    path: '/deals/{id}',
    tag: 'Deals',
    summary: 'Delete a deal with everything linked to it',
    problems: ['deal_not_found', 'deal_funded', 'precondition_failed'],
  },
  linkBorrower: {
    ...post,
    path: '/deals/{id}/borrowers',
    tag: 'Borrowers',
    summary: 'Link a borrower to a deal',
    body: newBorrowerSchema,
    record: borrowerSchema,
    problems: ['deal_not_found'],
  },
  listBorrowers: {
    ...list,
    path: '/deals/{id}/borrowers',
    tag: 'Borrowers',
    summary: 'List the borrowers of a deal',
    record: borrowerSchema,
    problems: ['deal_not_found'],
  },
  uploadDocument: {
    ...post,
    path: '/deals/{id}/documents',
    tag: 'Documents',
    summary: 'Upload a document to a deal',
    body: newDocumentSchema,
    isMultipart: true,
    record: documentSchema,
    problems: ['deal_not_found', 'too_many_documents', 'unsupported_file_type'],
  },
  listDocuments: {
    ...list,
    path: '/deals/{id}/documents',
    tag: 'Documents',
    summary: 'List the documents of a deal',
    record: documentSchema,
    problems: ['deal_not_found'],
  },
  getDocument: {
    ...get,
    path: '/deals/{id}/documents/{document_id}',
    tag: 'Documents',
    summary: 'Retrieve what is known of a document',
    record: documentSchema,
    problems: ['deal_not_found', 'document_not_found'],
  },
  downloadDocument: {
    ...get,
    path: '/deals/{id}/documents/{document_id}/content',
    tag: 'Documents',
    summary: "Download a document's file",
    record: null,
    problems: ['deal_not_found', 'document_not_found'],
  },
  createTask: {
    ...post,
    path: '/deals/{id}/tasks',
    tag: 'Tasks',
    summary: 'Create a task on a deal',
    body: newTaskSchema,
    record: taskSchema,
    problems: ['deal_not_found'],
  },
  listTasks: {
    ...list,
    path: '/deals/{id}/tasks',
    tag: 'Tasks',
    summary: 'List the tasks of a deal',
    record: taskSchema,
    problems: ['deal_not_found'],
  },
  completeTask: {
    ...post,
    path: '/tasks/{id}/complete',
    tag: 'Tasks',
    summary: 'Complete a task; again changes nothing',
    body: noBodySchema,
    status: 200,
    record: taskSchema,
    problems: ['task_not_found'],
  },
  requestDocumentGeneration: {
    ...post,
    path: '/deals/{id}/document-generations',
    tag: 'Document generation',
    summary: 'Ask for a document made from a template; it is attached to the deal when it is ready',
    body: newDocumentGenerationSchema,
    status: 202,
    record: documentGenerationSchema,
    problems: ['deal_not_found'],
  },
  listDocumentGenerations: {
    ...list,
    path: '/deals/{id}/document-generations',
    tag: 'Document generation',
    summary: 'List the document generations of a deal',
    record: documentGenerationSchema,
    problems: ['deal_not_found'],
  },
  getDocumentGeneration: {
    ...get,
    path: '/deals/{id}/document-generations/{generation_id}',
    tag: 'Document generation',
    summary: 'Retrieve a document generation',
    record: documentGenerationSchema,
    problems: ['deal_not_found', 'document_generation_not_found'],
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
    summary: 'Register an endpoint for notifications; the answer alone shows its secret',
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
    problems: ['webhook_endpoint_not_found'],
  },
  updateWebhookEndpoint: {
    ...patch,
    path: '/webhook-endpoints/{id}',
    tag: 'Webhooks',
    summary: 'Change an endpoint, or enable it again',
    body: webhookEndpointChangesSchema,
    record: webhookEndpointSchema,
    problems: ['webhook_endpoint_not_found'],
  },
  deleteWebhookEndpoint: {
    ...remove,
    path: '/webhook-endpoints/{id}',
    tag: 'Webhooks',
    summary: 'Remove an endpoint with its deliveries',
    problems: ['webhook_endpoint_not_found'],
  },
  listWebhookDeliveries: {
    ...list,
    path: '/webhook-endpoints/{id}/deliveries',
    tag: 'Webhooks',
    summary: 'List the notifications to an endpoint, and how they went',
    record: webhookDeliverySchema,
    problems: ['webhook_endpoint_not_found'],
  },
  redeliverWebhook: {
    ...post,
    path: '/webhook-endpoints/{id}/deliveries/{delivery_id}/redeliver',
    tag: 'Webhooks',
    summary: 'Send a notification once more',
    body: noBodySchema,
    status: 202,
    record: webhookDeliverySchema,
    problems: ['webhook_endpoint_not_found', 'webhook_delivery_not_found'],
  },
} satisfies Record<string, Endpoint>

/** Every endpoint, as exactly as it is described: what each operation takes and answers with comes from here. */
export type Described = typeof described

/** Every endpoint of the API. */
export const ENDPOINTS: {[Id in OperationId]: Endpoint<Operations[Id]>} = described
