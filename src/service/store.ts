import type {SQLInputValue, SQLOutputValue} from 'node:sqlite'
import type {ServiceDatabase} from './database.ts'

/** One deal as the service keeps it. Amounts are cents. */
export interface StoredDeal {
  id: string
  propertyAddress: string
  loanAmountCents: bigint
  propertyValueCents: bigint | null
  loanProgram: string | null
  status: string
  /** ms since the epoch */
  createdAt: number
}

/** The fields of a deal that may change; `undefined` leaves a field as it is. */
export type DealChange = {
  [Field in Exclude<keyof StoredDeal, 'id' | 'createdAt'>]?: StoredDeal[Field] | undefined
}

/** A place in the list: lists are ordered by `createdAt`, then `id`, both ascending. */
export type DealKey = Pick<StoredDeal, 'createdAt' | 'id'>

/** Deals and their amount (cents), per status. */
export interface StatusTotal {
  status: string
  deals: number
  amountCents: bigint
}

/** The service's deals in SQLite. */
export interface DealStore {
  /** Inserts all or none of the deals; returns how many. */
  insert(deals: Iterable<StoredDeal>): number
  get(id: string): StoredDeal | undefined
  /** At most `limit` deals behind `after`, in list order. */
  list(query: {after?: DealKey | undefined; status?: string | undefined; limit: number}): StoredDeal[]
  /** The key right before `key` in the list of this status, or of all; undefined when `key` is the first. */
  keyBefore(key: DealKey, status?: string): DealKey | undefined
  /** The ids of the deals in this status, or of all, in list order. */
  ids(status?: string): string[]
  /** The deal after the change; undefined when there is none. */
  update(id: string, change: DealChange): StoredDeal | undefined
  /** Whether there was such a deal. */
  remove(id: string): boolean
  count(): number
  /** The statuses that occur, alphabetically. */
  totals(): StatusTotal[]
  /** Runs `work` in one transaction; rolls back and rethrows when it throws. */
  transaction<T>(work: () => T): T
}

const COLUMNS =
  'id, property_address, loan_amount_cents, property_value_cents, loan_program, status, created_at'

type Row = Record<string, SQLOutputValue>

function dealOfRow(row: Row): StoredDeal {
  const value = row.property_value_cents
  const program = row.loan_program
  return {
    id: String(row.id),
    propertyAddress: String(row.property_address),
    loanAmountCents: BigInt(String(row.loan_amount_cents)),
    propertyValueCents: typeof value === 'bigint' ? value : null,
    loanProgram: typeof program === 'string' ? program : null,
    status: String(row.status),
    createdAt: Number(row.created_at),
  }
}

function valuesOf(deal: StoredDeal): SQLInputValue[] {
  return [
    deal.id,
    deal.propertyAddress,
    deal.loanAmountCents,
    deal.propertyValueCents,
    deal.loanProgram,
    deal.status,
    deal.createdAt,
  ]
}

/** Creates the store of deals over the service's database. */
export function createDealStore(database: ServiceDatabase): DealStore {
  const {transaction} = database
  const insertOne = database.prepare(`insert into deal (${COLUMNS}) values (?, ?, ?, ?, ?, ?, ?)`)
  const selectOne = database.prepare(`select ${COLUMNS} from deal where id = ?`)
  const selectPage = database.prepare(
    `select ${COLUMNS} from deal where (created_at, id) > (?, ?) order by created_at, id limit ?`,
  )
  const selectStatusPage = database.prepare(
    `select ${COLUMNS} from deal where status = ? and (created_at, id) > (?, ?) order by created_at, id limit ?`,
  )
  const selectBefore = database.prepare(
    `select id, created_at from deal where (created_at, id) < (?1, ?2) and status = coalesce(?3, status)
     order by created_at desc, id desc limit 1`,
  )
  const selectIds = database.prepare('select id from deal order by created_at, id')
  const selectStatusIds = database.prepare('select id from deal where status = ? order by created_at, id')
  const updateOne = database.prepare(
    `update deal set property_address = ?, loan_amount_cents = ?, property_value_cents = ?, loan_program = ?,
       status = ? where id = ?`,
  )
  const deleteOne = database.prepare('delete from deal where id = ?')
  const countAll = database.prepare('select count(*) as deals from deal')
  const sumByStatus = database.prepare(
    `select status, count(*) as deals, sum(loan_amount_cents) as amount_cents
     from deal group by status order by status`,
  )

  function get(id: string): StoredDeal | undefined {
    const row = selectOne.get(id)
    return row && dealOfRow(row)
  }

  return {
    get,
    transaction,
    insert: (deals) =>
      transaction(() => {
        let inserted = 0
        for (const deal of deals) {
          insertOne.run(...valuesOf(deal))
          inserted++
        }
        return inserted
      }),
    list: ({after, status, limit}) => {
      const place = [after?.createdAt ?? Number.MIN_SAFE_INTEGER, after?.id ?? '', limit]
      const rows = status === undefined ? selectPage.all(...place) : selectStatusPage.all(status, ...place)
      return rows.map(dealOfRow)
    },
    keyBefore: (key, status) => {
      const row = selectBefore.get(key.createdAt, key.id, status ?? null)
      return row && {id: String(row.id), createdAt: Number(row.created_at)}
    },
    ids: (status) =>
      (status === undefined ? selectIds.all() : selectStatusIds.all(status)).map((row) => String(row.id)),
    update: (id, change) => {
      const found = get(id)
      if (!found) return undefined
      const set = Object.fromEntries(Object.entries(change).filter(([, value]) => value !== undefined))
      const deal: StoredDeal = {...found, ...set}
      const [, ...columns] = valuesOf(deal)
      updateOne.run(...columns.slice(0, -1), id)
      return deal
    },
    remove: (id) => deleteOne.run(id).changes > 0,
    count: () => Number(countAll.get()?.deals ?? 0),
    totals: () =>
      sumByStatus.all().map((row) => ({
        status: String(row.status),
        deals: Number(row.deals),
        amountCents: BigInt(String(row.amount_cents)),
      })),
  }
}
