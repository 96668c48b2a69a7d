import type {Borrower, NewBorrower} from '../contract/borrower.ts'
import type {Deal, DealChanges, DealStatus, ListedDeal, NewDeal} from '../contract/deal-record.ts'
import type {DealDocument, DocumentGeneration, NewDocumentGeneration} from '../contract/document.ts'
import type {NewRate, Rate} from '../contract/rate.ts'
import type {PortfolioReport} from '../contract/report.ts'
import type {NewTask, Task} from '../contract/task.ts'
import type {
  CreatedWebhookEndpoint,
  NewWebhookEndpoint,
  WebhookDelivery,
  WebhookEndpoint,
  WebhookEndpointChanges,
  WebhookEvent,
} from '../contract/webhook.ts'
import {type Caller, createCaller, readPages, type WriteOptions} from './call.ts'
import {type ClientOptions, createSender} from './send.ts'
import {verifyWebhook, type WebhookHeaders} from './verify-webhook.ts'

/** Records per request; every list reads on until there are no more. */
interface Paging {
  /** 1 to 100; default 100. */
  limit?: number
}

/** A file to upload. */
export interface DocumentUpload {
  file: Blob | Uint8Array<ArrayBuffer>
  fileName?: string
  /** `appraisal`, … */
  category: string
  name: string
}

type Records<T> = AsyncGenerator<T, void, undefined>

/** A typed client of the Deal Financing Service; every method throws an ApiError when the service refuses. */
export interface DealClient {
  deals: {
    list(filter?: Paging & {stage?: DealStatus}): Records<ListedDeal>
    create(deal: NewDeal, options?: WriteOptions): Promise<Deal>
    get(id: string): Promise<Deal>
    update(id: string, changes: DealChanges, options?: WriteOptions): Promise<Deal>
    delete(id: string, options?: WriteOptions): Promise<void>
  }
  borrowers: {
    link(dealId: string, borrower: NewBorrower, options?: WriteOptions): Promise<Borrower>
    list(dealId: string, paging?: Paging): Records<Borrower>
  }
  documents: {
    upload(dealId: string, document: DocumentUpload, options?: WriteOptions): Promise<DealDocument>
    list(dealId: string, paging?: Paging): Records<DealDocument>
    download(dealId: string, documentId: string): Promise<Blob>
  }
  documentGenerations: {
    request(dealId: string, asked: NewDocumentGeneration, options?: WriteOptions): Promise<DocumentGeneration>
    get(dealId: string, id: string): Promise<DocumentGeneration>
  }
  tasks: {
    create(dealId: string, task: NewTask, options?: WriteOptions): Promise<Task>
    list(dealId: string, paging?: Paging): Records<Task>
    complete(id: string): Promise<Task>
  }
  rates: {
    push(rate: NewRate, options?: WriteOptions): Promise<Rate>
    list(filter?: Paging & {provider?: string; loan_program?: string; current?: boolean}): Records<Rate>
  }
  reports: {portfolio(): Promise<PortfolioReport>}
  webhookEndpoints: {
    create(endpoint: NewWebhookEndpoint, options?: WriteOptions): Promise<CreatedWebhookEndpoint>
    list(paging?: Paging): Records<WebhookEndpoint>
    update(id: string, changes: WebhookEndpointChanges): Promise<WebhookEndpoint>
    delete(id: string): Promise<void>
    deliveries(id: string, paging?: Paging): Records<WebhookDelivery>
    redeliver(id: string, deliveryId: string): Promise<WebhookDelivery>
  }
  webhooks: {
    /** The event of a notification. @throws where the signature is not of this secret, or is old */
    verify(body: string, headers: WebhookHeaders, secret: string): WebhookEvent
  }
}

function createDeals({call}: Caller): DealClient['deals'] {
  return {
    list: ({stage, limit = 100} = {}) =>
      readPages((query) => call('listDeals', {query}), {limit, status: stage}),
    create: async (body, options) => (await call('createDeal', {...options, body})).data,
    get: async (id) => (await call('getDeal', {ids: [id]})).data,
    update: async (id, body, options) => (await call('updateDeal', {...options, ids: [id], body})).data,
    delete: (id, options) => call('deleteDeal', {...options, ids: [id]}),
  }
}

function createDocuments({call, open}: Caller): DealClient['documents'] {
  return {
    upload: async (id, {file, fileName = 'file', category, name}, options) => {
      const body = new FormData()
      body.set('category', category)
      body.set('name', name)
      body.set('file', file instanceof Blob ? file : new Blob([file]), fileName)
      return (await call('uploadDocument', {...options, ids: [id], body})).data
    },
    list: (id, {limit = 100} = {}) =>
      readPages((query) => call('listDocuments', {ids: [id], query}), {limit}),
    download: async (id, documentId) =>
      await (await open('downloadDocument', {ids: [id, documentId]})).blob(),
  }
}

function createWebhookEndpoints({call}: Caller): DealClient['webhookEndpoints'] {
  return {
    create: async (body, options) => (await call('createWebhookEndpoint', {...options, body})).data,
    list: ({limit = 100} = {}) => readPages((query) => call('listWebhookEndpoints', {query}), {limit}),
    update: async (id, body) => (await call('updateWebhookEndpoint', {ids: [id], body})).data,
    delete: (id) => call('deleteWebhookEndpoint', {ids: [id]}),
    deliveries: (id, {limit = 100} = {}) =>
      readPages((query) => call('listWebhookDeliveries', {ids: [id], query}), {limit}),
    redeliver: async (id, deliveryId) => (await call('redeliverWebhook', {ids: [id, deliveryId]})).data,
  }
}

/**
 * Creates a client.
 *
 * @example
 * const client = createDealClient({baseUrl: 'http://127.0.0.1:4010/v1', apiKey: 'sk_test_…'})
 * for await (const deal of client.deals.list({stage: 'underwriting'})) console.log(deal.id)
 */
export function createDealClient(options: ClientOptions): DealClient {
  const caller = createCaller(createSender(options))
  const {call} = caller
  return {
    deals: createDeals(caller),
    borrowers: {
      link: async (id, body, more) => (await call('linkBorrower', {...more, ids: [id], body})).data,
      list: (id, {limit = 100} = {}) =>
        readPages((query) => call('listBorrowers', {ids: [id], query}), {limit}),
    },
    documents: createDocuments(caller),
    documentGenerations: {
      request: async (id, body, more) =>
        (await call('requestDocumentGeneration', {...more, ids: [id], body})).data,
      get: async (dealId, id) => (await call('getDocumentGeneration', {ids: [dealId, id]})).data,
    },
    tasks: {
      create: async (id, body, more) => (await call('createTask', {...more, ids: [id], body})).data,
      list: (id, {limit = 100} = {}) => readPages((query) => call('listTasks', {ids: [id], query}), {limit}),
      complete: async (id) => (await call('completeTask', {ids: [id]})).data,
    },
    rates: {
      push: async (body, more) => (await call('pushRate', {...more, body})).data,
      list: ({limit = 100, ...filter} = {}) =>
        readPages((query) => call('listRates', {query}), {limit, ...filter}),
    },
    reports: {portfolio: async () => (await call('getPortfolioReport')).data},
    webhookEndpoints: createWebhookEndpoints(caller),
    webhooks: {verify: verifyWebhook},
  }
}
