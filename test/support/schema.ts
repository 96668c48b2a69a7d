import {z} from 'zod'
import type {Stream} from '../../src/contract/stream.ts'

/** Acts like a schema fix: until disposed, and while `isOn`, a record whose field is `from` is read as if it were `to`. */
export function readFieldAs(
  stream: Stream,
  field: string,
  from: unknown,
  to: unknown,
  isOn: () => boolean = () => true,
): Disposable {
  const {schema} = stream
  const mend = (record: unknown) => {
    const fields = record as Record<string, unknown> | null
    return fields?.[field] === from && isOn() ? {...fields, [field]: to} : record
  }
  Object.assign(stream, {schema: z.preprocess(mend, schema)})
  return {[Symbol.dispose]: () => void Object.assign(stream, {schema})}
}
