import {z} from 'zod'
import {type Borrower, borrowerSchema} from '../contract/borrower.ts'
import {createId, rowInstant} from './database.ts'
import {requireDeal} from './deals.ts'
import type {Handlers, ServiceWorld} from './handlers.ts'
import {readTablePage} from './table-page.ts'

const row = borrowerSchema.extend({
  has_ssn_last_four: z.bigint().transform((flag) => flag === 1n),
  created_at: rowInstant,
})

/** Creates the operations on borrowers; the digits of the national id are checked for their form and dropped. */
export function createBorrowerHandlers(
  world: ServiceWorld,
): Pick<Handlers, 'linkBorrower' | 'listBorrowers'> {
  const {store, database, clock} = world
  return {
    linkBorrower: ({id: dealId, body}) => {
      requireDeal(store, dealId)
      const {first_name, last_name, email, ssn_last_four} = body
      const has_ssn_last_four = ssn_last_four !== undefined
      const createdAt = clock.now()
      const borrower: Borrower = {
        id: createId('bor'),
        deal_id: dealId,
        first_name,
        last_name,
        email,
        has_ssn_last_four,
        created_at: new Date(createdAt).toISOString(),
      }
      database.run(
        `insert into borrower (id, deal_id, first_name, last_name, email, has_ssn_last_four, created_at)
         values (?, ?, ?, ?, ?, ?, ?)`,
        borrower.id,
        dealId,
        first_name,
        last_name,
        email,
        Number(has_ssn_last_four),
        createdAt,
      )
      return {body: {data: borrower}}
    },
    listBorrowers: ({id, query}) => {
      requireDeal(store, id)
      const parent = {column: 'deal_id', id}
      return {body: readTablePage(query, {name: 'borrower', row, parent}, database)}
    },
  }
}
