import {z} from 'zod'
import {openDatabase} from '../../../src/store/database.ts'
import type {Place, Tool} from './tools.ts'

/** Amounts of the deals in cents, in the server's order. */
type Amounts = readonly number[]

/** What a tool's tables should hold after a load. */
export interface Expected {
  rows: number
  cents: bigint
  versions: number
}

const page = z.object({
  data: z.array(z.object({loan_amount: z.number()})),
  next_cursor: z.string().nullable(),
})
const sums = z.object({rows: z.string(), amount: z.string()})

/** Walks the server, apart from every tool. */
export async function readAmounts(url: string): Promise<Amounts> {
  const amounts: number[] = []
  let cursor: string | null = ''
  while (cursor !== null) {
    const response = await fetch(`${url}/v1/deals?limit=100${cursor && `&cursor=${cursor}`}`)
    const {data, next_cursor} = page.parse(await response.json())
    for (const {loan_amount} of data) amounts.push(Math.round(loan_amount * 100))
    cursor = next_cursor
  }
  return amounts
}

/** What is expected once the first and then the later amounts were loaded. */
export function expectResult(first: Amounts, later: Amounts): Expected {
  const changed = later.filter((cents, index) => cents !== first[index]).length
  return {
    rows: later.length,
    cents: BigInt(later.reduce((sum, cents) => sum + cents, 0)),
    versions: first.length + changed,
  }
}

/**
 * Compares what a tool's tables hold with what the server served; amounts to the cent, however they are stored.
 *
 * @throws Error when they differ
 */
export async function checkResult({result}: Tool, place: Place, expected: Expected): Promise<void> {
  if (!result) return
  const path = result.database?.(place) ?? place.database
  await using db = await openDatabase({
    attach: [{path, alias: 'tool', readOnly: true}],
    searchPath: 'tool.main',
  })
  const read = (source: string) =>
    db.one(
      sums,
      `select count(*) as rows, cast(sum(cast(loan_amount as decimal(18, 2))) * 100 as bigint) as amount from ${source}`,
    )
  const current = await read(result.current)
  if (current.rows !== String(expected.rows) || current.amount !== String(expected.cents)) {
    throw new Error(
      `a wrong result: ${current.rows} deals of ${current.amount} cents, expected ${expected.rows} of ${expected.cents}`,
    )
  }
  const versions = result.versions && (await read(result.versions)).rows
  if (versions && versions !== String(expected.versions)) {
    throw new Error(`a wrong history: ${versions} versions, expected ${expected.versions}`)
  }
}
