import {z} from 'zod'
import {FIRST, type ListKey, rowCount, type ServiceDatabase} from './service-database.ts'

/** A stored deal. Amounts are cents, `createdAt` ms since the epoch. */
export type StoredDeal = z.output<typeof dealRow>

const dealRow = z.object({
  id: z.string(),
  propertyAddress: z.string(),
  loanAmountCents: z.bigint(),
  propertyValueCents: z.bigint().nullable(),
  loanProgram: z.string().nullable(),
  status: z.string(),
  createdAt: rowCount,
})

/** The fields of a deal that may change; `undefined` leaves a field as it is. */
export type DealChange = {
  [Field in Exclude<keyof StoredDeal, 'id' | 'createdAt'>]?: StoredDeal[Field] | undefined
}

/** Deals and their amount (cents), per status. */
export type StatusTotal = z.output<typeof totalRow>

const totalRow = z.object({status: z.string(), deals: rowCount, amountCents: z.bigint()})

const SELECT = `
  select id, property_address as propertyAddress, loan_amount_cents as loanAmountCents,
    property_value_cents as propertyValueCents, loan_program as loanProgram, status, created_at as createdAt
  from deal`

const columnsOf = (deal: StoredDeal) => ({
  property_address: deal.propertyAddress,
  loan_amount_cents: deal.loanAmountCents,
  property_value_cents: deal.propertyValueCents,
  loan_program: deal.loanProgram,
  status: deal.status,
})

const PAGE = '(created_at, id) > (?, ?) order by created_at, id limit ?'

/** The service's deals in SQLite. */
export type DealStore = ReturnType<typeof createDealStore>

/** Creates the store of deals over the service's database. */
export function createDealStore(database: ServiceDatabase) {
  const {transaction} = database
  const selectIds = database.prepare('select id from deal order by created_at, id')
  const selectStatusIds = database.prepare('select id from deal where status = ? order by created_at, id')
  const get = (id: string): StoredDeal | undefined => database.get(dealRow, `${SELECT} where id = ?`, id)
  return {
    get,
    transaction,
    /** Inserts all or none of the deals. */
    insert: (deals: Iterable<StoredDeal>): void =>
      transaction(() => {
        for (const deal of deals) {
          database.insert('deal', {id: deal.id, created_at: deal.createdAt, ...columnsOf(deal)})
        }
      }),
    /** At most `limit` deals after `after`, in list order. */
    list({after = FIRST, status, limit}: {after?: ListKey; status?: string | undefined; limit: number}) {
      const page = [after.createdAt, after.id, limit]
      return status === undefined
        ? database.all(dealRow, `${SELECT} where ${PAGE}`, ...page)
        : database.all(dealRow, `${SELECT} where status = ? and ${PAGE}`, status, ...page)
    },
    /** The ids of all deals, or of those in this status, in list order. */
    ids: (status?: string): string[] =>
      (status === undefined ? selectIds.all() : selectStatusIds.all(status)).map((row) => String(row.id)),
    /** Changes a deal and returns it; undefined if there is none. */
    update(id: string, change: DealChange): StoredDeal | undefined {
      const found = get(id)
      if (!found) return undefined
      const set = Object.fromEntries(Object.entries(change).filter(([, value]) => value !== undefined))
      const deal: StoredDeal = {...found, ...set}
      database.update('deal', id, columnsOf(deal))
      return deal
    },
    /** Whether there was such a deal. */
    remove: (id: string): boolean => database.run('delete from deal where id = ?', id) > 0,
    count: (): number =>
      database.get(z.object({deals: rowCount}), 'select count(*) as deals from deal')?.deals ?? 0,
    /** The statuses that occur, alphabetically. */
    totals: (): StatusTotal[] =>
      database.all(
        totalRow,
        `select status, count(*) as deals, sum(loan_amount_cents) as amountCents
         from deal group by status order by status`,
      ),
  }
}
