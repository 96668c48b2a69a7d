import {isObject, listRepeated} from '../json.ts'
import type {Received, WireRecord, World} from '../types.ts'
import type {JsonAnswer} from './answer.ts'
import {askEach, type EachAnswer, type EachRequest, type EachSummary, failedAs} from './ask-each.ts'
import type {SourceClient} from './client.ts'

/** What a record's own page says. */
export type DetailSaid = EachAnswer<{record: WireRecord; observedAt: bigint}>

/** The same with the answer as it came. */
export type DetailAnswer = EachAnswer<{record: WireRecord; observedAt: bigint; received: Received}>

/**
 * Fetches single records and hands them out in the order of their ids, see {@link askEach}.
 *
 * @returns the summary, as the generator's return value
 */
export function fetchDetails(
  ids: Iterable<string> | AsyncIterable<string>,
  request: EachRequest,
  client: Pick<SourceClient, 'getJson'>,
  world: Pick<World, 'log'>,
): AsyncGenerator<DetailAnswer, EachSummary, undefined> {
  return askEach(
    ids,
    request,
    async (id, path, signal): Promise<DetailAnswer> => {
      const answer = await client.getJson(path, {}, signal)
      const said = readAnswer(id, answer)
      return said.outcome === 'failed' ? said : {...said, received: answer.received}
    },
    world,
  )
}

/** What an answer says of the record it was asked for. */
export function readAnswer(
  id: string,
  {status, body, observedAt}: Pick<JsonAnswer, 'status' | 'body' | 'observedAt'>,
): DetailSaid {
  if (status === 404 || status === 410) return {id, outcome: 'gone', status, observedAt}
  if (status !== 200) return failedAs(id, `HTTP_${status}`)
  const isTwice = listRepeated(body).some(([name, ...rest]) => name === 'data' && rest.length === 0)
  const record = isObject(body) && !isTwice ? body.data : undefined
  if (!isObject(record)) return failedAs(id, 'NO_RECORD')
  if (record.id !== id) return failedAs(id, 'OTHER_RECORD')
  return {id, outcome: 'found', record, observedAt}
}
