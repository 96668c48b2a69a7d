import type {WireRecord} from './source.ts'

/** What one record shows, read. */
export interface Shown {
  address: string | null
  amount: bigint
  value?: bigint | null
  program?: string | null
  status: string
  statusText: string
  createdAt: string
}

/** Reads an amount by the contract: a number up to 7e13 or decimal text, two places; cents. */
function readCents(value: unknown): bigint | null {
  const text = typeof value === 'number' ? (value > 7e13 ? '' : formatNumber(value)) : value
  if (typeof text !== 'string') return null
  const match = /^(\d{1,16})(?:\.(\d{1,2})0*)?$/.exec(text.trim())
  return match ? BigInt(match[1]! + (match[2] ?? '').padEnd(2, '0')) : null
}

function formatNumber(value: number): string {
  const text = value.toFixed(2)
  return Number(text) === value ? text : ''
}

/** What a record of the source shows; null if unreadable. */
export function readRecord(record: WireRecord): Shown | null {
  const {id, property_address, loan_amount, status, created_at} = record
  const amount = readCents(loan_amount)
  const value = record.property_value
  const cents = value === null || value === undefined ? value : readCents(value)
  const texts = [id, property_address, record.loan_program, status]
  const isText = (text: unknown) => text === null || text === undefined || typeof text === 'string'
  const isLong = (text: unknown) => typeof text === 'string' && (text.length > 8192 || text.includes('\0'))
  if (typeof id !== 'string' || id === '' || amount === null || (cents === null && value !== null))
    return null
  if (typeof status !== 'string' || status === '' || typeof created_at !== 'string') return null
  if (!texts.every(isText) || texts.some(isLong) || !id.isWellFormed()) return null
  const program = record.loan_program as string | null | undefined
  return {
    // Half of a surrogate pair is no character.
    address: (property_address as string | null)?.toWellFormed() ?? null,
    amount,
    ...(cents !== undefined && {value: cents}),
    ...(program !== undefined && {program: program?.trim() ? program : null}),
    status: status.trim().toLowerCase(),
    statusText: status,
    createdAt: created_at,
  }
}
