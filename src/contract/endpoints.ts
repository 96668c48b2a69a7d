import type {Readable} from 'node:stream'
import type {z} from 'zod'
import {borrowerEndpoints} from './borrower.ts'
import {dealEndpoints} from './deal.ts'
import {documentEndpoints} from './document.ts'
import type {Endpoint, Operation} from './endpoint.ts'
import type {ListBody} from './list.ts'
import {otherEndpoints} from './other-records.ts'
import {webhookEndpoints} from './webhook.ts'

const described = {
  ...dealEndpoints,
  ...borrowerEndpoints,
  ...documentEndpoints,
  ...otherEndpoints,
  ...webhookEndpoints,
}

/** Every endpoint of the API. */
export const ENDPOINTS: {[Id in OperationId]: Endpoint<Operations[Id]>} = described

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
