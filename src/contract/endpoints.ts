import {borrowerEndpoints} from './borrower.ts'
import {dealEndpoints} from './deal.ts'
import {documentEndpoints} from './document.ts'
import type {Endpoint} from './endpoint.ts'
import {otherEndpoints} from './other-records.ts'
import {webhookEndpoints} from './webhook.ts'

const described = {
  ...dealEndpoints,
  ...borrowerEndpoints,
  ...documentEndpoints,
  ...otherEndpoints,
  ...webhookEndpoints,
}

export type OperationId = keyof typeof described

export type Operations = {
  [Id in OperationId]: (typeof described)[Id] extends Endpoint<infer Op> ? Op : never
}

export const ENDPOINTS: {[Id in OperationId]: Endpoint<Operations[Id]>} = described
