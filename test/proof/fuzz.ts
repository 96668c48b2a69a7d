import assert from 'node:assert/strict'
import {z} from 'zod'
import {dealStream} from '../../src/contract/deal.ts'
import {findEnvelope, readPage} from '../../src/contract/list.ts'
import {LoantapeError} from '../../src/core/errors.ts'
import {formatCents} from '../../src/core/money.ts'
import type {NormalisedPage} from '../../src/core/types.ts'
import {createNormaliser} from '../../src/source/record.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {createFolder} from '../support/data.ts'
import {walk} from '../support/walks.ts'
import {spoilPage} from './mutation.ts'
import {type ProofRequest, type Proved, prove, type Run} from './proof.ts'
import {requireSound} from './soundness.ts'

/** Pages of one run: walks of one warehouse, and pages in each. */
export const PAGES_PER_RUN = 500
const WALKS = 5

const normalise = createNormaliser(dealStream)

/** Reads a spoilt page as a walk would; undefined if it is refused with one of our errors. */
function readSpoilt(text: string, add: Run['add']): unknown[] | undefined {
  const body: unknown = JSON.parse(text)
  add('pages')
  try {
    return readPage(body, findEnvelope(body)).records
  } catch (error) {
    if (!(error instanceof LoantapeError)) throw error
    add('refused')
    return undefined
  }
}

/** The pages of one walk; if it is to prove absence, every id in them is readable. */
function drawPages({random, add}: Run): unknown[][] {
  const keepsIds = random.chance(0.6)
  const pages: unknown[][] = []
  for (let drawn = 0; drawn < PAGES_PER_RUN / WALKS; drawn += 1) {
    const records = readSpoilt(spoilPage(random), add)
    if (!records) continue
    const isProof = normalise(records, 0n).quarantined.every(({id}) => id !== null)
    if (isProof || !keepsIds) pages.push(records)
  }
  return pages
}

/** The expected state of a deal. */
interface Known {
  kind: 'seen' | 'missing' | 'vanished'
  cents: bigint
  walk: number
}

/** Applies a walk by the rules, without SQL; returns the expected certificate. */
function applyByHand(known: Map<string, Known>, pages: readonly NormalisedPage[], number: number) {
  const latest = new Map<string, bigint>()
  const rejected = new Set<string>()
  let [observed, quarantined, isProof] = [0, 0, true]
  for (const page of pages) {
    observed += page.observations.length
    quarantined += page.quarantined.length
    // The engine stores well-formed text only.
    for (const {id, fields} of page.observations)
      latest.set(id.toWellFormed(), BigInt(String(fields.loan_amount)))
    for (const {id} of page.quarantined) {
      if (id === null) isProof = false
      else rejected.add(id.toWellFormed())
    }
  }
  for (const [id, before] of known) {
    const isAbsent = isProof && before.kind !== 'vanished' && !latest.has(id) && !rejected.has(id)
    if (!isAbsent) continue
    const kind = before.kind === 'missing' && before.walk === number - 1 ? 'vanished' : 'missing'
    known.set(id, {...before, kind, walk: number})
  }
  for (const [id, cents] of latest) known.set(id, {kind: 'seen', cents, walk: number})
  return {
    records: observed + quarantined,
    distinct: latest.size,
    duplicates: observed - latest.size,
    quarantined,
    amountTotal: formatCents(latest.values().reduce((sum, cents) => sum + cents, 0n)),
  }
}

const headRow = z.object({deal_id: z.string(), kind: z.string(), loan_amount: z.string()})

/**
 * Feeds spoilt pages to everything between the answer and the warehouse. Whatever a page contains, it is stored or refused with
 * one of our errors; every certificate and every state follows the rules, to the cent.
 *
 * A run is {@link PAGES_PER_RUN} pages in a few walks of one warehouse.
 */
export function proveFuzz(request: ProofRequest): Promise<Proved> {
  return prove('fuzz', request, async (run) => {
    using data = createFolder()
    await using db = await openWarehouse(data.folder)
    const known = new Map<string, Known>()
    for (let number = 1; number <= WALKS; number += 1) {
      const pages = drawPages(run)
      const {certificate, walk: walked} = await walk(db, {at: `2026-02-0${number}T23:30:00Z`, pages})
      const normalised = pages.map((records) => normalise(records, 0n))
      const {records, distinct, duplicates, quarantined} = certificate
      const amountTotal = walked.certified?.amount_total
      const expected = applyByHand(known, normalised, number)
      assert.deepEqual({records, distinct, duplicates, quarantined, amountTotal}, expected)
      const heads = await db.all(headRow, 'select deal_id, kind, loan_amount from warehouse.raw.deal_head')
      const stored = new Map(heads.map((head) => [head.deal_id, `${head.kind} ${head.loan_amount}`]))
      const states = [...known].map(([id, {kind, cents}]) => [id, `${kind} ${formatCents(cents)}`] as const)
      assert.deepEqual(stored, new Map(states))
      await requireSound(db)
      run.add('records', records)
      run.add('quarantined', quarantined)
    }
  })
}
