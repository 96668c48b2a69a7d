import {computedRow, type RowOf} from '../build/release-row.ts'
import {isCalendarDate} from '../core/clock.ts'
import {
  addressLine,
  type Column,
  capitalised,
  countOf,
  dollars,
  linked,
  renderPages,
  table,
  words,
} from './figures.ts'
import {type Ask, addressBehind, addressOfDeal} from './filter.ts'
import {html} from './html.ts'
import type {Page, View} from './view.ts'

/** A number that names deals, and the deals it is made of. */
interface Behind {
  title: string
  /** Parameters of its address, in the order of `$1`, `$2`, … . */
  asks: readonly Ask[]
  /** `deal_id`, `what` in a few words, and `amount`; a deal may have several rows. */
  sql: string
}

const DAYS = `days_in_status || if(days_in_status = 1, ' day', ' days')`

/** SQL of the positions of a class at the end of a day, or found by the first walk. */
const funded = (when: string) => `
  select deal_id, position.status as what, loan_amount as amount
  from work.position_span as position inner join seed.status on status.status = position.status
  where class = 'funded' and ${when}`
const monthStart = `cast($1 || '-01' as date)`
const onDay = (day: string) => `from_day <= ${day} and coalesce(to_day > ${day}, true)`

/** The funded deals of the largest buckets of a dimension. */
const largest = (bucket: string, join = '') => `
  with placed as (
    select deal.deal_id, deal.loan_amount, ${bucket} as bucket from core.deal as deal ${join} where status_class = 'funded'
  )
  select deal_id, bucket as what, loan_amount as amount from placed
  where bucket in (
    select bucket from placed group by bucket order by sum(loan_amount) desc, bucket limit cast($1 as bigint)
  )`

/** SQL of the deals in the states or programs that a breakdown sums up as others. */
const others = (column: string) => `
  with placed as (
    select deal_id, loan_amount, coalesce(${column}, 'unknown') as bucket from core.deal
    where status_class not in ('ended_funded', 'ended_unfunded')
  ),
  ranked as (
    select bucket, row_number() over (order by sum(loan_amount) desc, bucket) as place from placed group by bucket
  )
  select deal_id, bucket as what, loan_amount as amount
  from placed inner join ranked using (bucket) where place > cast($1 as bigint)`

const NUMBERS: Record<string, Behind> = {
  stuck: {
    title: 'In their status for longer than usual',
    asks: [],
    sql: `select deal_id, status || ', ' || ${DAYS} as what, loan_amount as amount
      from mart.pipeline_aging where is_stuck`,
  },
  without_appraisal: {
    title: 'In underwriting without an appraisal',
    asks: [],
    sql: `select deal_id, status as what, loan_amount as amount
      from mart.document_coverage where status = 'underwriting' and not has_appraisal`,
  },
  aging: {
    title: '$1, days in it: $2',
    asks: ['in_status', 'age_band'],
    sql: `select deal_id, ${DAYS} as what, loan_amount as amount
      from mart.pipeline_aging where status = $1 and age_band = $2`,
  },
  aging_stuck: {
    title: '$1, days in it: $2, longer than usual',
    asks: ['in_status', 'age_band'],
    sql: `select deal_id, ${DAYS} as what, loan_amount as amount
      from mart.pipeline_aging where status = $1 and age_band = $2 and is_stuck`,
  },
  term: {
    title: '$2 in $1',
    asks: ['month', 'term'],
    sql: `select deal_id, cast(business_date as varchar) as what, amount
      from mart.funded_rollforward_deal where month = $1 and term = $2`,
  },
  opening: {
    title: 'Funded at the opening of $1',
    asks: ['month'],
    sql: funded(`case
      when $1 = (select min(month) from mart.funded_rollforward) then at_first_walk
      else ${onDay(`${monthStart} - 1`)}
    end`),
  },
  closing: {
    title: 'Funded at the closing of $1',
    asks: ['month'],
    sql: funded(onDay(`least(last_day(${monthStart}), cast(getvariable('as_of') as date))`)),
  },
  way: {
    title: 'From $2 to $3 in $1',
    asks: ['month', 'from', 'to'],
    sql: `select deal_id, null as what, amount from work.month_move
      where month = $1 and coalesce(from_status, '(new)') = $2 and coalesce(to_status, '(gone)') = $3
      union all
      select deal_id, 'as before' as what, loan_amount as amount from work.position_span
      where $2 = $3 and status = $2 and case
        when $1 = (select min(month) from mart.status_transition) then at_first_walk
        else ${onDay(`${monthStart} - 1`)}
      end
      and deal_id not in (select deal_id from work.month_move where month = $1 and from_status is not null)`,
  },
  reached: {
    title: 'Created in $1, reached $2 or later',
    asks: ['month', 'in_status'],
    sql: `select deal_id, null as what, loan_amount as amount from work.deal_life
      where created_month = $1 and reached_order >= (select sort_order from seed.status where status = $2)`,
  },
  entered: {
    title: 'Created in $1',
    asks: ['month'],
    sql: 'select deal_id, cast(created_on as varchar) as what, loan_amount as amount from work.deal_life where created_month = $1',
  },
  cohort_funded: {
    title: 'Created in $1, and funded since',
    asks: ['month'],
    sql: `select deal_id, cast(reached_funded_on as varchar) as what, loan_amount as amount from work.deal_life
      where created_month = $1 and reached_funded_on is not null`,
  },
  funded_in: {
    title: 'Funded in $1',
    asks: ['month'],
    sql: `select deal_id, cast(business_date as varchar) as what, amount from work.funded_movement
      where month = $1 and term = 'originated'`,
  },
  fell_out_in: {
    title: 'Fell out in $1',
    asks: ['month'],
    sql: `select deal_id, cast(fell_out_on as varchar) as what, fell_out_amount as amount from work.deal_life
      where strftime(fell_out_on, '%Y-%m') = $1`,
  },
  other_states: {title: 'Open, in other states', asks: ['beyond'], sql: others('state')},
  other_programs: {title: 'Open, of other loan programs', asks: ['beyond'], sql: others('loan_program')},
  largest_deal: {title: 'The $1 largest funded deals', asks: ['top'], sql: largest('deal.deal_id')},
  largest_loan_program: {
    title: 'Funded, of the $1 largest loan programs',
    asks: ['top'],
    sql: largest(`coalesce(loan_program, 'unknown')`),
  },
  largest_state: {title: 'Funded, in the $1 largest states', asks: ['top'], sql: largest('state')},
  largest_borrower: {
    title: 'Funded, of the $1 largest borrowers',
    asks: ['top'],
    sql: largest(
      `coalesce('person ' || person, 'deal ' || deal.deal_id)`,
      'left join core.borrower on borrower.deal_id = deal.deal_id and is_primary',
    ),
  },
}

const isCount = (text: string) => /^\d{1,9}$/.test(text)

/** The forms of parameters, so that no query fails because of one. */
const FORMS: Partial<Record<Ask, (text: string) => boolean>> = {
  month: (text) => isCalendarDate(`${text}-01`),
  beyond: isCount,
  top: isCount,
}

const PER_PAGE = 50

const totalRow = computedRow({rows: 'count', deals: 'count', amount: 'sum'})
const behindRow = computedRow({
  deal_id: 'text?',
  what: 'text?',
  amount: 'decimal?',
  property_address: 'text?',
})
type BehindRow = RowOf<typeof behindRow>

/** `/behind/<number>`: the deals behind a number of another page, with their sum; undefined for an unknown number. */
export async function viewBehind({tables, filter, query}: View, name: string): Promise<Page | undefined> {
  const behind = Object.hasOwn(NUMBERS, name) ? NUMBERS[name] : undefined
  if (!behind) return undefined
  const asked = behind.asks.map((ask) => query.get(ask) ?? (ask === 'beyond' ? '0' : ''))
  if (behind.asks.some((ask, index) => FORMS[ask]?.(asked[index] ?? '') === false)) return undefined
  const page = Math.max(1, Math.min(1_000_000, Number.parseInt(query.get('page') ?? '1', 10) || 1))
  const total = await tables.one(
    totalRow,
    `select count(*) as rows, count(distinct deal_id) as deals, sum(amount) as amount from (${behind.sql}\n)`,
    asked,
  )
  const rows = await tables.all(
    behindRow,
    `select listed.*, property_address from (${behind.sql}\n) as listed
     left join core.deal_history as history on history.deal_id = listed.deal_id and valid_to is null
     order by abs(amount) desc, listed.deal_id, what limit ${PER_PAGE} offset ${(page - 1) * PER_PAGE}`,
    asked,
  )
  const columns: Column<BehindRow>[] = [
    {
      title: 'Deal',
      cell: ({deal_id}) =>
        deal_id === null ? 'All' : linked(html`<code>${deal_id}</code>`, addressOfDeal(deal_id)),
    },
    {title: 'Amount', kind: 'number', cell: ({amount}) => dollars(amount)},
    {title: 'What', cell: ({what}) => (what === null ? '' : words(what))},
    {
      title: 'Property',
      cell: ({deal_id, property_address}) => (deal_id === null ? '' : addressLine(property_address)),
    },
  ]
  const pages = Math.max(1, Math.ceil(total.rows / PER_PAGE))
  const here = Object.fromEntries(behind.asks.map((ask, index) => [ask, asked[index]]))
  const all = pages === 1 ? {...total, deal_id: null, what: null, property_address: null} : undefined
  return {
    title: capitalised(
      behind.title.replaceAll(/\$(\d)/g, (_, place: string) => words(asked[Number(place) - 1])),
    ),
    body: html`<p class="muted" id="total">${countOf(total.deals, 'deal')}, ${dollars(total.amount)}</p>
${rows.length === 0 ? html`<p class="empty">There are none.</p>` : table(columns, rows, all)}
${renderPages(page, pages, (other) => addressBehind(name, filter, {...here, page: String(other)}))}`,
  }
}
