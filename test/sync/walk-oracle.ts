import type {ChangeCounts, WireRecord} from '../../src/core/types.ts'

/** One record of a list as a walk may see it. */
export interface ListedRecord {
  id: string
  amount: number
  status: string
  /** Undefined when the record leaves the field out. */
  value: number | null | undefined
  program: string | null | undefined
  /** The part of it that cannot be read. */
  bad: 'amount' | 'id' | null
}

/** A complete walk. */
export interface Walked {
  isFiltered: boolean
  pages: ListedRecord[][]
}

/** A deal as currently known. */
export interface Known {
  kind: 'seen' | 'missing' | 'vanished'
  amount: number
  status: string
  value: number | null
  program: string | null
  /** Number of the walk that last changed it, and the page it was seen on. */
  walk: number
  page: number
}

/** The result a walk must have. */
export interface Expected {
  counts: ChangeCounts
  /** Versions this walk appends, by deal. */
  appended: Map<string, Known>
}

/** A record on the wire. */
export function toWire({id, amount, status, value, program, bad}: ListedRecord): WireRecord {
  return {
    id: bad === 'id' ? 17 : id,
    property_address: '1 Main St, Austin, TX 78701',
    loan_amount: bad === 'amount' ? 'unreadable' : amount,
    status,
    created_at: '2026-01-05T15:00:00Z',
    ...(value === undefined ? {} : {property_value: value}),
    ...(program === undefined ? {} : {loan_program: program}),
  }
}

/** A second implementation of the apply rules, record by record and without SQL. */
export function createOracle(): {known: Map<string, Known>; apply: (walked: Walked) => Expected} {
  const known = new Map<string, Known>()
  const quarantined: {id: string; walk: number; page: number}[] = []
  let walk = 0

  function apply({isFiltered, pages}: Walked): Expected {
    walk += 1
    const counts: ChangeCounts = {created: 0, updated: 0, missing: 0, vanished: 0, restored: 0, unchanged: 0}
    const appended = new Map<string, Known>()
    const latest = new Map<string, ListedRecord & {page: number}>()
    const rejected = new Set<string>()
    let isProof = !isFiltered
    pages.forEach((records, page) => {
      for (const record of records) {
        if (record.bad === 'id') isProof = false
        else if (record.bad === 'amount') {
          rejected.add(record.id)
          quarantined.push({id: record.id, walk, page})
        } else latest.set(record.id, {...record, page})
      }
    })

    const absent = [...known].filter(
      ([id, {kind}]) => kind !== 'vanished' && !latest.has(id) && !rejected.has(id),
    )
    for (const [id, record] of latest) {
      const before = known.get(id)
      const {amount, status, page} = record
      const value = record.value === undefined ? (before?.value ?? null) : record.value
      const program = record.program === undefined ? (before?.program ?? null) : record.program
      const content = contentOf(before, {amount, status, value, program})
      counts[content] += 1
      const followsQuarantine =
        before !== undefined &&
        quarantined.some((q) => q.id === id && (q.walk - before.walk || q.page - before.page) > 0)
      // Another spelling is stored as sent and counts as unchanged.
      const isRespelled = before !== undefined && (before.status !== status || before.program !== program)
      if (content === 'unchanged' && before?.kind === 'seen' && !followsQuarantine && !isRespelled) continue
      appended.set(id, {kind: 'seen', amount, status, value, program, walk, page})
    }
    if (isProof) {
      for (const [id, before] of absent) {
        const kind = before.kind === 'missing' && before.walk === walk - 1 ? 'vanished' : 'missing'
        if (kind === 'vanished') counts.vanished += 1
        else if (before.kind === 'seen') counts.missing += 1
        appended.set(id, {...before, kind, walk, page: 0})
      }
    }
    for (const [id, state] of appended) known.set(id, state)
    return {counts, appended}
  }

  return {known, apply}
}

/** Another spelling is the same status, and a blank program is none. */
const plain = (status: string) => status.trim().toLowerCase()

function contentOf(
  before: Known | undefined,
  now: Pick<Known, 'amount' | 'status' | 'value' | 'program'>,
): 'created' | 'restored' | 'updated' | 'unchanged' {
  if (before === undefined) return 'created'
  if (before.kind === 'vanished') return 'restored'
  const isSame =
    before.amount === now.amount &&
    plain(before.status) === plain(now.status) &&
    before.value === now.value &&
    (before.program?.trim() || null) === (now.program?.trim() || null)
  return isSame ? 'unchanged' : 'updated'
}
