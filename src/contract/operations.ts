import type {Readable} from 'node:stream'
import type {Borrower, NewBorrower} from './borrower.ts'

import type {Deal, DealChanges, DealQuery, ListedDeal, NewDeal} from './deal-record.ts'
import type {DealDocument, DocumentGeneration, NewDocument, NewDocumentGeneration} from './document.ts'
import type {ListBody, PageQuery} from './page.ts'
import type {NewRate, Rate, RateQuery} from './rate.ts'
import type {PortfolioReport} from './report.ts'
import type {NewTask, Task} from './task.ts'
import type {
  CreatedWebhookEndpoint,
  NewWebhookEndpoint,
  WebhookDelivery,
  WebhookEndpoint,
  WebhookEndpointChanges,
} from './webhook.ts'

/** What one operation takes and answers with, after parsing. */
export interface Operation {
  query: object
  body: unknown
  answer: unknown
}

interface Get<Answer> extends Operation {
  query: object
  body: undefined
  answer: Answer
}

interface List<Item, Query = PageQuery> extends Operation {
  query: Query & PageQuery
  body: undefined
  answer: ListBody<Item>
}

interface Send<Body, Answer> extends Operation {
  query: object
  body: Body
  answer: Answer
}

/** The envelope of one record. */
export interface One<T> {
  data: T
}

/** Every operation of the API by its id. */
export interface Operations {
  listDeals: List<ListedDeal, DealQuery>
  createDeal: Send<NewDeal, One<Deal>>
  getDeal: Get<One<Deal>>
  updateDeal: Send<DealChanges, One<Deal>>
  deleteDeal: Send<undefined, undefined>
  linkBorrower: Send<NewBorrower, One<Borrower>>
  listBorrowers: List<Borrower>
  uploadDocument: Send<NewDocument, One<DealDocument>>
  listDocuments: List<DealDocument>
  getDocument: Get<One<DealDocument>>
  downloadDocument: Get<Readable>
  createTask: Send<NewTask, One<Task>>
  listTasks: List<Task>
  completeTask: Send<undefined, One<Task>>
  requestDocumentGeneration: Send<NewDocumentGeneration, One<DocumentGeneration>>
  listDocumentGenerations: List<DocumentGeneration>
  getDocumentGeneration: Get<One<DocumentGeneration>>
  pushRate: Send<NewRate, One<Rate>>
  listRates: List<Rate, RateQuery>
  getPortfolioReport: Get<One<PortfolioReport>>
  createWebhookEndpoint: Send<NewWebhookEndpoint, One<CreatedWebhookEndpoint>>
  listWebhookEndpoints: List<WebhookEndpoint>
  getWebhookEndpoint: Get<One<WebhookEndpoint>>
  updateWebhookEndpoint: Send<WebhookEndpointChanges, One<WebhookEndpoint>>
  deleteWebhookEndpoint: Send<undefined, undefined>
  listWebhookDeliveries: List<WebhookDelivery>
  redeliverWebhook: Send<undefined, One<WebhookDelivery>>
}

/** The id of an operation. */
export type OperationId = keyof Operations
