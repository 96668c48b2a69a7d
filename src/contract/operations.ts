import type {Readable} from 'node:stream'
import type {z} from 'zod'
import type {Endpoint} from './endpoint.ts'
import type {Described} from './endpoints.ts'
import type {ListBody} from './page.ts'

/** What one operation takes and answers with, after parsing. */
export interface Operation {
  query: object
  body: unknown
  answer: unknown
}

/** A record stands in `data`, alone or as a list; without one there is no body, or a file. */
type AnswerOf<E extends Endpoint> = E extends {record: infer Schema extends z.ZodType}
  ? E extends {isList: true}
    ? ListBody<z.output<Schema>>
    : {data: z.output<Schema>}
  : E extends {status: 204}
    ? undefined
    : Readable

/** What an endpoint takes and answers with, after parsing. */
export interface OperationOf<E extends Endpoint> extends Operation {
  query: z.output<E['query']>
  body: z.output<E['body']>
  answer: AnswerOf<E>
}

/** Every operation of the API by its id. */
export type Operations = {[Id in OperationId]: OperationOf<Described[Id]>}

/** The id of an operation. */
export type OperationId = keyof Described
