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
} from '../contract/webhook.ts'
import {createCaller, readPages, type WriteOptions} from './call.ts'
import {type ClientOptions, createSender} from './send.ts'
import {verifyWebhook} from './verify-webhook.ts'

/** Records per request; every list reads on until there are no more. */
type Paging = {
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
export type DealClient = ReturnType<typeof createDealClient>

/**
 * Creates a client.
 *
 * @example
 * const client = createDealClient({baseUrl: 'http://127.0.0.1:4010/v1', apiKey: 'sk_test_…'})
 * for await (const deal of client.deals.list({stage: 'underwriting'})) console.log(deal.id)
 */
export function createDealClient(options: ClientOptions) {
  const {call, open} = createCaller(createSender(options))
  return {
    deals: {
      list: ({stage, ...paging}: Paging & {stage?: DealStatus} = {}): Records<ListedDeal> =>
        readPages((query) => call('listDeals', {query}), {...paging, status: stage}),
      create: async (deal: NewDeal, more?: WriteOptions): Promise<Deal> =>
        (await call('createDeal', {...more, body: deal})).data,
      get: async (id: string): Promise<Deal> => (await call('getDeal', {ids: [id]})).data,
      update: async (id: string, changes: DealChanges, more?: WriteOptions): Promise<Deal> =>
        (await call('updateDeal', {...more, ids: [id], body: changes})).data,
      delete: (id: string, more?: WriteOptions): Promise<void> => call('deleteDeal', {...more, ids: [id]}),
    },
    borrowers: {
      link: async (dealId: string, borrower: NewBorrower, more?: WriteOptions): Promise<Borrower> =>
        (await call('linkBorrower', {...more, ids: [dealId], body: borrower})).data,
      list: (dealId: string, paging?: Paging): Records<Borrower> =>
        readPages((query) => call('listBorrowers', {ids: [dealId], query}), paging),
    },
    documents: {
      async upload(dealId: string, document: DocumentUpload, more?: WriteOptions): Promise<DealDocument> {
        const {file, fileName = 'file', category, name} = document
        const body = new FormData()
        body.set('category', category)
        body.set('name', name)
        body.set('file', file instanceof Blob ? file : new Blob([file]), fileName)
        return (await call('uploadDocument', {...more, ids: [dealId], body})).data
      },
      list: (dealId: string, paging?: Paging): Records<DealDocument> =>
        readPages((query) => call('listDocuments', {ids: [dealId], query}), paging),
      download: async (dealId: string, documentId: string): Promise<Blob> =>
        await (await open('downloadDocument', {ids: [dealId, documentId]})).blob(),
    },
    documentGenerations: {
      request: async (
        dealId: string,
        asked: NewDocumentGeneration,
        more?: WriteOptions,
      ): Promise<DocumentGeneration> =>
        (await call('requestDocumentGeneration', {...more, ids: [dealId], body: asked})).data,
      get: async (dealId: string, id: string): Promise<DocumentGeneration> =>
        (await call('getDocumentGeneration', {ids: [dealId, id]})).data,
    },
    tasks: {
      create: async (dealId: string, task: NewTask, more?: WriteOptions): Promise<Task> =>
        (await call('createTask', {...more, ids: [dealId], body: task})).data,
      list: (dealId: string, paging?: Paging): Records<Task> =>
        readPages((query) => call('listTasks', {ids: [dealId], query}), paging),
      complete: async (id: string): Promise<Task> => (await call('completeTask', {ids: [id]})).data,
    },
    rates: {
      push: async (rate: NewRate, more?: WriteOptions): Promise<Rate> =>
        (await call('pushRate', {...more, body: rate})).data,
      list: (
        filter?: Paging & {provider?: string; loan_program?: string; current?: boolean},
      ): Records<Rate> => readPages((query) => call('listRates', {query}), filter),
    },
    reports: {
      portfolio: async (): Promise<PortfolioReport> => (await call('getPortfolioReport')).data,
    },
    webhookEndpoints: {
      create: async (endpoint: NewWebhookEndpoint, more?: WriteOptions): Promise<CreatedWebhookEndpoint> =>
        (await call('createWebhookEndpoint', {...more, body: endpoint})).data,
      list: (paging?: Paging): Records<WebhookEndpoint> =>
        readPages((query) => call('listWebhookEndpoints', {query}), paging),
      update: async (id: string, changes: WebhookEndpointChanges): Promise<WebhookEndpoint> =>
        (await call('updateWebhookEndpoint', {ids: [id], body: changes})).data,
      delete: (id: string): Promise<void> => call('deleteWebhookEndpoint', {ids: [id]}),
      deliveries: (id: string, paging?: Paging): Records<WebhookDelivery> =>
        readPages((query) => call('listWebhookDeliveries', {ids: [id], query}), paging),
      redeliver: async (id: string, deliveryId: string): Promise<WebhookDelivery> =>
        (await call('redeliverWebhook', {ids: [id, deliveryId]})).data,
    },
    webhooks: {verify: verifyWebhook},
  }
}
