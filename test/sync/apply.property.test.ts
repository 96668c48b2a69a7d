import fc from 'fast-check'
import {expect, test} from 'vitest'
import type {Database} from '../../src/store/database.ts'
import {anyRow} from '../support/data.ts'
import {walk} from '../support/walks.ts'
import {createOracle, type Known, type ListedRecord, toWire, type Walked} from './walk-oracle.ts'
import {useWarehouse} from './warehouse.ts'

/** `HISTORIES=200` tries more of them than an ordinary test run. */
const RUNS = Number(process.env.HISTORIES ?? 6)

let db: Database

useWarehouse((opened) => {
  db = opened
})

const aListedRecord: fc.Arbitrary<ListedRecord> = fc.record({
  id: fc.constantFrom('a', 'b', 'c', 'd'),
  amount: fc.constantFrom(100, 200.5),
  status: fc.constantFrom('draft', 'draft', ' Draft\t', 'funded', 'FUNDED'),
  program: fc.constantFrom(undefined, null, '', ' \u00a0', 'bridge'),
  value: fc.constantFrom(undefined, undefined, null, 1000),
  bad: fc.constantFrom(null, null, null, null, null, null, 'amount' as const, 'id' as const),
})

const walks: fc.Arbitrary<Walked[]> = fc.array(
  fc.record({
    isFiltered: fc.constantFrom(false, false, false, true),
    pages: fc.tuple(fc.array(aListedRecord, {maxLength: 4}), fc.array(aListedRecord, {maxLength: 3})),
  }),
  {minLength: 1, maxLength: 6},
)

async function forgetEverything(): Promise<void> {
  for (const table of ['walk', 'quarantine', 'deal_version', 'deal_head'])
    await db.run(`delete from warehouse.raw.${table}`)
}

/** Content as the oracle counts it. */
const CONTENT =
  'kind, cast(loan_amount as double) as amount, status, loan_program as program, cast(property_value as double) as value'

const contentOf = ({kind, amount, status, program, value}: Known) => ({kind, amount, status, program, value})

/** Rows whose latest state differs from the one recomputed from the versions alone. */
const HEAD_DIFFERS = `
  with carried as (
    select
      *,
      last_value(case when property_value_present then {'it': property_value} end ignore nulls) over so_far as value,
      last_value(case when loan_program_present then {'it': loan_program} end ignore nulls) over so_far as program
    from warehouse.raw.deal_version
    window so_far as (partition by deal_id order by observed_at, seq)
  ),
  rebuilt as (
    select
      deal_id, kind, walk_id, observed_at, business_date, row_hash, property_address, loan_amount,
      value.it as property_value, program.it as loan_program, status, created_at, created_at_precision
    from carried
    qualify row_number() over (partition by deal_id order by observed_at desc, seq desc) = 1
  ),
  head as (
    select
      deal_id, kind, walk_id, observed_at, business_date, row_hash, property_address, loan_amount,
      property_value, loan_program, status, created_at, created_at_precision
    from warehouse.raw.deal_head
  )
  (from head except from rebuilt)
  union all
  (from rebuilt except from head)`

const UNTIED_WALKS = `
  from warehouse.raw.walk
  where records <> created + updated + restored + unchanged + duplicates + quarantined
    or present_deals <> distinct_records + kept_quarantined_deals + kept_missing_deals + adjusted_deals
    or present_amount <> amount_total + kept_quarantined_amount + kept_missing_amount + adjusted_amount`

/** Adjacent equal versions of a deal: one is stored after a quarantined record or while the deal stays missing. */
const SAME_NEIGHBOURS = `
  with pair as (
    select *, lag(kind) over deal as kind_before, lag(row_hash) over deal as hash_before,
      lag(observed_at) over deal as observed_before
    from warehouse.raw.deal_version
    window deal as (partition by deal_id order by seq)
  )
  select deal_id, seq from pair
  where kind = 'seen' and kind_before = 'seen' and row_hash = hash_before
    and not exists (
      from warehouse.raw.quarantine
      where record_id = deal_id and quarantine.observed_at > observed_before
    )
  union all
  select deal_id, seq from pair where kind = 'vanished' and kind_before = 'vanished'`

test('any sequence of walks leaves what the rules say, tied out to the cent', async () => {
  await fc.assert(
    fc.asyncProperty(walks, async (sequence) => {
      await forgetEverything()
      const oracle = createOracle()
      const stored = new Map<string, Known[]>()
      for (const [index, walked] of sequence.entries()) {
        const at = `2026-02-${String(index + 1).padStart(2, '0')}T23:30:00Z`
        const {plan} = await walk(db, {
          at,
          pages: walked.pages.map((records) => records.map(toWire)),
          filter: walked.isFiltered ? 'status=draft' : '',
        })
        const expected = oracle.apply(walked)
        expect(plan.counts).toEqual(expected.counts)
        for (const [id, state] of expected.appended) stored.set(id, [...(stored.get(id) ?? []), state])
      }

      const heads = await db.all(
        anyRow,
        `select deal_id, ${CONTENT} from warehouse.raw.deal_head order by deal_id`,
      )
      expect(heads).toEqual(
        [...oracle.known].sort().map(([id, state]) => ({deal_id: id, ...contentOf(state)})),
      )
      for (const [id, states] of stored) {
        // A version omits what its record left out, so the oracle's value and program are compared with the head only.
        const versions = await db.all(
          anyRow,
          `select ${CONTENT} from warehouse.raw.deal_version where deal_id = $1 order by seq`,
          [id],
        )
        expect(versions.map(({value: _, program: __, ...row}) => row)).toEqual(
          states.map(contentOf).map(({value: _, program: __, ...row}) => row),
        )
      }
      for (const wrong of [UNTIED_WALKS, HEAD_DIFFERS, SAME_NEIGHBOURS])
        expect(await db.all(anyRow, wrong)).toEqual([])
    }),
    {numRuns: RUNS, seed: 2026},
  )
})
