import {dealStream} from '../../src/contract/deal.ts'
import type {Observation, Quarantined, WireRecord} from '../../src/core/types.ts'
import {createNormaliser} from '../../src/source/record.ts'

/** A deal as a list row on the wire: without value and program. */
export function aRecord(fields: WireRecord = {}): WireRecord {
  return {
    id: 'deal_000001',
    property_address: '1 Main St, Austin, TX 78701',
    loan_amount: 350_000,
    status: 'draft',
    created_at: '2026-01-05T15:00:00Z',
    ...fields,
  }
}

/** A record that nests too deeply to be written as JSON, without a readable id. */
export const DEEP = `{"id": ${'['.repeat(20_000)}${']'.repeat(20_000)}}`

const normalise = createNormaliser(dealStream)

export function observe(record: unknown, observedAt = 0n): Observation {
  const {observations, quarantined} = normalise([record], observedAt)
  if (!observations[0]) throw new Error(`quarantined: ${quarantined[0]?.path} ${quarantined[0]?.reason}`)
  return observations[0]
}

export function reject(record: unknown, observedAt = 0n): Quarantined {
  const {quarantined} = normalise([record], observedAt)
  if (!quarantined[0]) throw new Error('not quarantined')
  return quarantined[0]
}
