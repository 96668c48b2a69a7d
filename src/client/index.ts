export type {Borrower, NewBorrower} from '../contract/borrower.ts'
export type {Deal, DealChanges, DealStatus, ListedDeal, NewDeal} from '../contract/deal.ts'
export type {DealDocument, DocumentGeneration} from '../contract/document.ts'
export type {NewRate, NewTask, Rate, Task} from '../contract/other-records.ts'
export type {EventType, WebhookDelivery, WebhookEndpoint, WebhookEvent} from '../contract/webhook.ts'
export type {
  ApiErrorCode,
  CallOptions,
  ClientOptions,
  DealClient,
  DocumentUpload,
  List,
  ListPage,
  Paging,
  WriteOptions,
} from './client.ts'
export {ApiError, createDealClient, verifyWebhook} from './client.ts'
