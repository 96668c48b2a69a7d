import {z} from 'zod'
import {borrowerSchema} from '../contract/borrower.ts'
import {readTablePage} from './cursor.ts'
import {requireDeal} from './deals.ts'
import type {Handlers, ServiceWorld} from './handlers.ts'
import {createId, rowInstant} from './service-database.ts'

const row = borrowerSchema.extend({
  has_ssn_last_four: z.bigint().transform((flag) => flag === 1n),
  created_at: rowInstant,
})

/** Creates the operations on borrowers; the digits of the national id are checked for their form and dropped. */
export function createBorrowerHandlers({store, database, clock}: ServiceWorld) {
  return {
    linkBorrower: ({id: dealId, body}) => {
      requireDeal(store, dealId)
      const {ssn_last_four, ...given} = body
      const id = createId('bor')
      const has_ssn_last_four = ssn_last_four !== undefined
      const now = clock.now()
      database.insert('borrower', {
        id,
        deal_id: dealId,
        ...given,
        has_ssn_last_four: Number(has_ssn_last_four),
        created_at: now,
      })
      const created_at = new Date(now).toISOString()
      return {body: {data: {id, deal_id: dealId, ...given, has_ssn_last_four, created_at}}}
    },
    listBorrowers: ({id, query}) => {
      requireDeal(store, id)
      return {body: readTablePage(query, {name: 'borrower', row, parent: {deal_id: id}}, database)}
    },
  } satisfies Partial<Handlers>
}
