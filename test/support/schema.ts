import {z} from 'zod'
import type {Stream} from '../../src/contract/stream.ts'

/** What a fix of the schema would do: until it is disposed, a record whose field says `from` is read as if it said `to`. */
export function readFieldAs(stream: Stream, field: string, from: unknown, to: unknown): Disposable {
  const {schema} = stream
  const mend = (record: unknown) => {
    const fields = record as Record<string, unknown> | null
    return fields?.[field] === from ? {...fields, [field]: to} : record
  }
  Object.assign(stream, {schema: z.preprocess(mend, schema)})
  return {[Symbol.dispose]: () => void Object.assign(stream, {schema})}
}
