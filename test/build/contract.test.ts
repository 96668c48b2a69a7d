import {expect, test} from 'vitest'
import {z} from 'zod'
import {canonicalSql} from '../../src/store/sql.ts'
import {buildRelease, builtInPlan} from './history.ts'

/** The names analysts' queries rely on: every published table, its columns in order, their types. */
const TABLES: Record<string, string> = {
  'accounting.journal_line': `period VARCHAR, entry_id VARCHAR, line_no BIGINT, entry_date DATE, event VARCHAR,
    account_code VARCHAR, account_name VARCHAR, debit DECIMAL(18,2), credit DECIMAL(18,2), memo VARCHAR,
    deal_id VARCHAR, loan_program VARCHAR, term VARCHAR`,
  'accounting.loan_register': `deal_id VARCHAR, property_address VARCHAR, loan_program VARCHAR,
    loan_amount DECIMAL(18,2), funded_on DATE, funded_before DATE,
    funded_on_is_exact BOOLEAN`,
  'accounting.opening_line': `period VARCHAR, entry_id VARCHAR, line_no BIGINT, entry_date DATE, event VARCHAR,
    account_code VARCHAR, account_name VARCHAR, debit DECIMAL(18,2), credit DECIMAL(18,2), memo VARCHAR,
    deal_id VARCHAR, loan_program VARCHAR, term VARCHAR`,
  'accounting.tie_out': `month VARCHAR, term VARCHAR, amount DECIMAL(38,2), booked DECIMAL(38,2), opening_balance DECIMAL(38,2),
    elsewhere DECIMAL(38,2), no_account DECIMAL(38,2), difference DECIMAL(38,2)`,
  'core.borrower': `deal_id VARCHAR, borrower_id VARCHAR, person VARCHAR, email_hash VARCHAR, is_primary BOOLEAN,
    linked_at TIMESTAMP, first_seen_at TIMESTAMP, is_missing BOOLEAN`,
  'core.deal': `deal_id VARCHAR, property_address VARCHAR, state VARCHAR, zip VARCHAR, loan_amount DECIMAL(18,2),
    property_value DECIMAL(18,2), ltv DECIMAL(19,9), loan_program VARCHAR, status VARCHAR, status_text VARCHAR,
    status_class VARCHAR, created_at TIMESTAMP, created_on DATE, first_seen_at TIMESTAMP, last_changed_at TIMESTAMP, status_since DATE,
    status_since_is_exact BOOLEAN, status_since_at_earliest DATE, status_since_at_latest DATE,
    funded_on DATE, funded_after DATE, funded_before DATE, funded_on_is_exact BOOLEAN, first_funded_on DATE,
    value_confirmed_on DATE, is_missing BOOLEAN`,
  'core.deal_history': `deal_id VARCHAR, version BIGINT, change VARCHAR, valid_from TIMESTAMP, valid_to TIMESTAMP,
    business_date DATE, property_address VARCHAR, loan_amount DECIMAL(18,2), property_value DECIMAL(18,2),
    loan_program VARCHAR, status VARCHAR, status_class VARCHAR`,
  'core.document': `deal_id VARCHAR, document_id VARCHAR, category VARCHAR, uploaded_at TIMESTAMP,
    first_seen_at TIMESTAMP, is_missing BOOLEAN`,
  'core.field_change': `deal_id VARCHAR, field VARCHAR, old_value VARCHAR, new_value VARCHAR, observed_at TIMESTAMP,
    observed_on DATE`,
  'core.reference_rate': `feed VARCHAR, rate VARCHAR, rate_date DATE, value DECIMAL(19,8), observed_at TIMESTAMP,
    revisions BIGINT`,
  'core.status_change': `deal_id VARCHAR, from_status VARCHAR, to_status VARCHAR, observed_at TIMESTAMP,
    observed_on DATE, days_in_previous BIGINT`,
  'mart.concentration': `dimension VARCHAR, open_top_1_pct DOUBLE, open_top_5_pct DOUBLE, open_top_10_pct DOUBLE, open_hhi DOUBLE,
    funded_top_1_pct DOUBLE, funded_top_5_pct DOUBLE, funded_top_10_pct DOUBLE, funded_hhi DOUBLE`,
  'mart.data_quality':
    'scope VARCHAR, metric VARCHAR, field VARCHAR, found VARCHAR, value DOUBLE, deals BIGINT',
  'mart.document_coverage': `deal_id VARCHAR, status VARCHAR, status_class VARCHAR, loan_amount DECIMAL(18,2),
    status_since DATE, listed_at TIMESTAMP, documents BIGINT, has_appraisal BOOLEAN, last_appraisal_at TIMESTAMP`,
  'mart.funding_curve': 'cohort_month VARCHAR, age_months BIGINT, deals BIGINT, funded_pct DOUBLE',
  'mart.funded_rollforward': `month VARCHAR, opening DECIMAL(38,2), found DECIMAL(38,2), originated DECIMAL(38,2), refunded DECIMAL(38,2),
    restored DECIMAL(38,2), increased DECIMAL(38,2), decreased DECIMAL(38,2), reversed DECIMAL(38,2), vanished DECIMAL(38,2),
    paid_off DECIMAL(38,2), sold DECIMAL(38,2), refinanced DECIMAL(38,2), foreclosed DECIMAL(38,2), charged_off DECIMAL(38,2),
    ended_other DECIMAL(38,2), closing DECIMAL(38,2), difference DECIMAL(38,2)`,
  'mart.funded_rollforward_deal': `month VARCHAR, deal_id VARCHAR, term VARCHAR, amount DECIMAL(18,2),
    business_date DATE`,
  'mart.limit_status': `name VARCHAR, dimension VARCHAR, bucket VARCHAR, scope VARCHAR, kind VARCHAR,
    limit_value DECIMAL(18,2), warn_at_pct DECIMAL(19,2), valid_from DATE, limit_amount DECIMAL(38,2), exposure DECIMAL(38,2),
    share_pct DOUBLE, additional_room DECIMAL(38,2), excess DECIMAL(38,2), state VARCHAR, breached_since DATE,
    exposure_if_approved_fund DECIMAL(38,2), state_if_approved_fund VARCHAR`,
  'mart.movement': `day DATE, deal_id VARCHAR, what VARCHAR, status_before VARCHAR, status_after VARCHAR, class_before VARCHAR,
    class_after VARCHAR, amount_before DECIMAL(18,2), amount_after DECIMAL(18,2), open DECIMAL(18,2), funded DECIMAL(18,2),
    pipeline DECIMAL(18,2)`,
  'mart.origination_monthly': 'month VARCHAR, loan_program VARCHAR, deals BIGINT, amount DECIMAL(38,2)',
  'mart.pipeline_aging': `deal_id VARCHAR, status VARCHAR, loan_amount DECIMAL(18,2), status_since DATE,
    status_since_is_exact BOOLEAN, days_in_status BIGINT, days_in_status_at_most BIGINT, age_band VARCHAR, usual_days BIGINT, is_stuck BOOLEAN`,
  'mart.pipeline_funnel': `cohort_month VARCHAR, status VARCHAR, reached_deals BIGINT, reached_amount DECIMAL(38,2),
    conversion_pct DOUBLE`,
  'mart.portfolio_breakdown': `dimension VARCHAR, bucket VARCHAR, sort_order BIGINT, deals BIGINT,
    amount DECIMAL(38,2), share_pct DOUBLE, funded_deals BIGINT, funded_amount DECIMAL(38,2), funded_share_pct DOUBLE,
    open_deals BIGINT, open_amount DECIMAL(38,2), ended_deals BIGINT, ended_amount DECIMAL(38,2),
    open_wa_ltv DOUBLE, open_pooled_ltv DOUBLE, funded_wa_ltv DOUBLE, funded_pooled_ltv DOUBLE`,
  'mart.portfolio_monthly': `month_end DATE, dimension VARCHAR, bucket VARCHAR, sort_order BIGINT, open_deals BIGINT,
    open_amount DECIMAL(38,2), open_wa_ltv DOUBLE, funded_deals BIGINT, funded_amount DECIMAL(38,2), funded_wa_ltv DOUBLE`,
  'mart.portfolio_summary': `as_of DATE, deals BIGINT, amount DECIMAL(38,2), open_deals BIGINT,
    open_amount DECIMAL(38,2), open_wa_ltv DOUBLE, open_pooled_ltv DOUBLE, open_ltv_coverage_pct DOUBLE,
    open_average_amount DECIMAL(18,2), open_median_amount DECIMAL(18,2), open_largest_amount DECIMAL(18,2), ended_deals BIGINT,
    ended_amount DECIMAL(38,2), pipeline_deals BIGINT, pipeline_amount DECIMAL(38,2), funded_deals BIGINT,
    funded_amount DECIMAL(38,2), funded_wa_ltv DOUBLE, funded_pooled_ltv DOUBLE, funded_ltv_coverage_pct DOUBLE,
    funded_average_amount DECIMAL(18,2), funded_median_amount DECIMAL(18,2), funded_largest_amount DECIMAL(18,2)`,
  'mart.position_daily': 'day DATE, status VARCHAR, deals BIGINT, amount DECIMAL(38,2), observed BOOLEAN',
  'mart.pull_through': `month VARCHAR, loan_program VARCHAR, entered BIGINT, entered_amount DECIMAL(38,2), funded BIGINT,
    funded_amount DECIMAL(38,2), fallout BIGINT, fallout_amount DECIMAL(38,2), pull_through_pct DOUBLE,
    pull_through_amount_pct DOUBLE, fallout_pct DOUBLE, fallout_amount_pct DOUBLE, cohort_funded BIGINT,
    cohort_pull_through_pct DOUBLE`,
  'mart.rate_daily': 'feed VARCHAR, rate VARCHAR, day DATE, value DECIMAL(19,8), rate_date DATE',
  'mart.run': `walk_id VARCHAR, stream VARCHAR, business_date DATE, started_at TIMESTAMP, ended_at TIMESTAMP,
    recorded_at TIMESTAMP, is_complete BOOLEAN, pages BIGINT, records BIGINT, distinct_records BIGINT,
    duplicates BIGINT, quarantined BIGINT, amount_total DECIMAL(38,2), is_shifted BOOLEAN, resumed BIGINT, accepted VARCHAR, accepted_by VARCHAR, accepted_why VARCHAR,
    waited_ms BIGINT, envelope VARCHAR, cursor_digest VARCHAR, ended_how VARCHAR, created BIGINT, updated BIGINT,
    missing BIGINT, vanished BIGINT, restored BIGINT, unchanged BIGINT, present_deals BIGINT,
    present_amount DECIMAL(38,2), kept_quarantined_deals BIGINT, kept_quarantined_amount DECIMAL(38,2),
    kept_missing_deals BIGINT, kept_missing_amount DECIMAL(38,2), adjusted_deals BIGINT, adjusted_amount DECIMAL(38,2),
    details_fetched BIGINT, details_failed BIGINT`,
  'mart.stage_duration': `status VARCHAR, exit VARCHAR, spells BIGINT, completed BIGINT, at_risk BIGINT, median_days BIGINT, p90_days BIGINT`,
  'mart.status_transition': `month VARCHAR, from_status VARCHAR, to_status VARCHAR, deals BIGINT,
    amount DECIMAL(38,2), roll_rate_pct DOUBLE, roll_rate_amount_pct DOUBLE, is_partial BOOLEAN`,
  'mart.top_exposure': `dimension VARCHAR, rank BIGINT, deal_id VARCHAR, person VARCHAR, property_address VARCHAR,
    loan_program VARCHAR, deals BIGINT, loan_amount DECIMAL(38,2), share_pct DOUBLE`,
  'mart.vintage': `cohort_month VARCHAR, months_on_book BIGINT, outcome VARCHAR, deals BIGINT, amount DECIMAL(38,2), share_pct DOUBLE,
    cohort_deals BIGINT, cohort_amount DECIMAL(38,2)`,
}

const tableRow = z.object({name: z.string(), columns: z.string()})

test('a release has exactly these tables, columns and types', async () => {
  await using db = await buildRelease({})
  const tables = await db.all(
    tableRow,
    `select
       schema_name || '.' || table_name as name,
       string_agg(column_name || ' ' || data_type, ', ' order by column_index) as columns
     from duckdb_columns()
     where database_name = 'release' and schema_name in ('core', 'mart', 'accounting')
     group by all order by name`,
  )
  const promised = Object.entries(TABLES).map(([name, columns]) => [name, columns.replaceAll(/\s+/g, ' ')])
  expect(Object.fromEntries(tables.map(({name, columns}) => [name, columns]))).toEqual(
    Object.fromEntries(promised),
  )
})

test('models compare statuses as the load does', async () => {
  const {plan} = await builtInPlan()
  const model = plan.models.find(({name}) => name === 'work.deal_observation')
  expect(model?.sql).toContain(`'status': ${canonicalSql('status')},`)
})

test('the quarantine is read only through work.quarantined, which applies as_of and known_at', async () => {
  const {plan} = await builtInPlan()
  const readers = [...plan.reads, ...plan.checkReads].filter(([, read]) => read.includes('raw.quarantine'))
  expect(readers.map(([name]) => name)).toEqual(['work.quarantined'])
})

test('every published column is checked as not null, or its comment says when it is null', async () => {
  const {plan} = await builtInPlan()
  const silent = plan.models
    .filter(({isPublished}) => isPublished)
    .flatMap(({name, columns, checks}) => {
      const filled = checks.filter(({rule}) => rule === 'not_null').flatMap(({args}) => args)
      return columns
        .filter(
          (column) =>
            !filled.includes(column.name) && !/\bnull\b[^.;]* (when|where|if) /i.test(column.meaning),
        )
        .map((column) => `${name}.${column.name}`)
    })
  expect(silent).toEqual([])
})
