import pLimit from 'p-limit'
import {ApiError} from '../client/api-error.ts'
import type {DealClient} from '../client/deal-client.ts'
import {PROBLEMS} from '../contract/problem.ts'
import {newError} from '../errors.ts'
import {tellForeign} from '../foreign.ts'
import type {DealRow} from './deal-rows.ts'
import type {RowResult} from './result-file.ts'

/** What `loantape push deals --json` prints: the rows by what came of them. */
export type PushResult = Record<RowResult['outcome'], number> & {result_file: string}

/** What a push works with. */
export interface PushWorld {
  client: Pick<DealClient, 'deals'>
  /** The deals of earlier pushes, by external reference. */
  known: ReadonlyMap<string, string>
  onResult: (result: RowResult) => void
  signal: AbortSignal
}

const AT_ONCE = 4
const KEPT = 'Every deal created so far is named in the result file.'
const NEXT = 'Run the same command again: it goes on with the rows that are left.'

const KNOWN_CODES = new Set([...Object.keys(PROBLEMS), 'unknown', 'answer_too_large'])

/** Only what concerns one row is a result; what concerns them all ends the push. */
function throwUnlessOfRow(error: ApiError): void {
  const {status} = error
  const code = tellForeign(error.code, KNOWN_CODES)
  const answer = status === 0 ? 'no answer came' : `status ${status} (${code})`
  if (status === 401 || status === 403) {
    const problem = `The service refused the API key: ${answer}.`
    throw newError('PUSH_UNAUTHORIZED', problem, {cause: error})
  }
  if (status === 0 || status === 429 || status >= 500) {
    const problem = `The service does not take deals now: ${answer}.`
    throw newError('PUSH_UNREACHABLE', problem, {cause: error})
  }
}

function explainRefusal({message, errors}: ApiError): string {
  return [message, ...errors.map((error) => `${error.path}: ${error.message}`)].join('; ')
}

async function pushRow(row: DealRow, {client, known}: PushWorld): Promise<RowResult> {
  const {line, reference} = row
  const base = {line, external_reference: reference, deal_id: '', message: ''}
  if ('problem' in row) return {...base, outcome: 'invalid', message: row.problem}
  const knownId = known.get(reference)
  if (knownId !== undefined) return {...base, outcome: 'known', deal_id: knownId}
  try {
    const {id} = await client.deals.create(row.deal, {idempotencyKey: reference})
    return {...base, outcome: 'created', deal_id: id}
  } catch (error) {
    if (!(error instanceof ApiError)) throw error
    throwUnlessOfRow(error)
    return {...base, outcome: 'refused', message: explainRefusal(error)}
  }
}

/**
 * Creates the deal of every row once: its external reference is the Idempotency-Key, and rows that an earlier push
 * created are not sent.
 *
 * @throws AuthError `PUSH_UNAUTHORIZED`; DeferredError `PUSH_UNREACHABLE` or `INTERRUPTED`, when what is left can be
 * pushed by the same command later
 */
export async function pushDeals(
  rows: readonly DealRow[],
  world: PushWorld,
): Promise<Record<RowResult['outcome'], number>> {
  const counts = {created: 0, known: 0, invalid: 0, refused: 0}
  const limit = pLimit(AT_ONCE)
  let failure: unknown
  const pushOne = async (row: DealRow): Promise<void> => {
    if (failure !== undefined || world.signal.aborted) return
    try {
      const result = await pushRow(row, world)
      world.onResult(result)
      counts[result.outcome]++
    } catch (error) {
      failure ??= error
    }
  }
  await Promise.all(rows.map((row) => limit(() => pushOne(row))))
  if (failure !== undefined) throw failure
  if (world.signal.aborted)
    throw newError('INTERRUPTED', 'The push was asked to stop.', {kept: KEPT, next: NEXT})
  return counts
}
