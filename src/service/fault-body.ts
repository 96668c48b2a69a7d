import type {WireRecord} from '../types.ts'
import type {DueFault, EnvelopeShape} from './faults.ts'

function isObject(value: unknown): value is WireRecord {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isListBody(body: WireRecord): boolean {
  return Array.isArray(body.data) && typeof body.has_more === 'boolean'
}

function reshapeEnvelope(body: WireRecord, shape: EnvelopeShape): WireRecord {
  const {has_more, next_cursor, data} = body
  switch (shape) {
    case 'pagination':
      return {data, pagination: {has_more, next_cursor}}
    case 'meta':
      return {data, meta: {has_more, next_cursor}}
    case 'data_object':
      return {data: {deals: data, has_more, next_cursor}}
    case 'missing_has_more':
      return {data, next_cursor}
    case 'string_has_more':
      return {data, has_more: String(has_more), next_cursor}
    case 'no_cursor':
      return {data, has_more}
  }
}

function repeatCursor(body: WireRecord, cursor: string | undefined): WireRecord {
  return {...body, has_more: true, next_cursor: cursor ?? body.next_cursor}
}

/**
 * Applies one fault to a JSON body. Faults of lists leave other bodies alone.
 *
 * @param askedCursor the cursor the request was sent with
 */
function spoilBody(body: WireRecord, due: DueFault, askedCursor: string | undefined): unknown {
  const {fault, firstCursor} = due
  if (fault.kind === 'mutate') return fault.change(body)
  if (!isListBody(body)) return body
  if (fault.kind === 'envelope') return reshapeEnvelope(body, fault.shape)
  if (fault.kind !== 'repeat_cursor') return body
  return repeatCursor(body, fault.which === 'first' ? firstCursor : askedCursor)
}

/** Applies every fault in turn to the JSON text of a body; text that is no JSON object stays as it is. */
export function spoilJson(text: string, due: readonly DueFault[], askedCursor: string | undefined): string {
  let body: unknown = JSON.parse(text)
  for (const one of due) {
    if (isObject(body)) body = spoilBody(body, one, askedCursor)
  }
  return JSON.stringify(body)
}
