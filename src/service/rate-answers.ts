import {z} from 'zod'
import {parseInstant} from '../clock.ts'
import {type ListKey, readListPage} from './cursor.ts'
import type {Handlers, ServiceWorld} from './handlers.ts'
import {createId, rowInstant} from './service-database.ts'

const row = z
  .object({
    id: z.string(),
    provider: z.string(),
    loan_program: z.string(),
    rate_pct_e4: z.bigint(),
    effective_at: rowInstant,
    created_at: rowInstant,
  })
  .transform(({rate_pct_e4, ...rate}) => ({...rate, rate_pct: Number(rate_pct_e4) / 10_000}))

// In force: the latest that has taken effect; of two of one instant, the one received last.
const SELECT_PAGE = `
  select * from rate
  where provider = coalesce(?1, provider)
    and loan_program = coalesce(?2, loan_program)
    and (?3 is null or id = (
      select latest.id from rate as latest
      where latest.provider = rate.provider
        and latest.loan_program = rate.loan_program
        and latest.effective_at <= ?3
      order by latest.effective_at desc, latest.created_at desc, latest.id desc
      limit 1
    ))
    and (created_at, id) > (?4, ?5)
  order by created_at, id
  limit ?6`

/** Creates the operations on rates: providers push, everybody reads the history or what is in force. */
export function createRateHandlers(world: ServiceWorld) {
  const {database, clock} = world
  return {
    pushRate: ({body}) => {
      const createdAt = clock.now()
      const given = body.effective_at === undefined ? null : parseInstant(body.effective_at)
      const effectiveAt = given === null ? createdAt : Number(given / 1000n)
      const {provider, loan_program, rate_pct} = body
      const named = {id: createId('rate'), provider, loan_program}
      database.insert('rate', {
        ...named,
        rate_pct_e4: Math.round(rate_pct * 10_000),
        effective_at: effectiveAt,
        created_at: createdAt,
      })
      const effective_at = new Date(effectiveAt).toISOString()
      return {body: {data: {...named, rate_pct, effective_at, created_at: new Date(createdAt).toISOString()}}}
    },
    listRates: ({query}) => {
      const {provider = null, loan_program = null, current = false} = query
      const now = current ? clock.now() : null
      const fetch = ({createdAt, id}: ListKey, limit: number) =>
        database.all(row, SELECT_PAGE, provider, loan_program, now, createdAt, id, limit)
      const filter = JSON.stringify([provider, loan_program, current])
      return {body: readListPage(query, {name: 'rates', filter, fetch}, database.secret)}
    },
  } satisfies Partial<Handlers>
}
