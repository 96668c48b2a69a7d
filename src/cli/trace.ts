import {listLinesOf} from '../accounting/issued.ts'
import {newError} from '../core/errors.ts'
import {groupThousands, quantity} from '../core/money.ts'
import {type EvidenceResult, writeEvidence} from '../record/evidence.ts'
import {type FigureTrace, isFigure, type Trace, traceDeal, traceFigure} from '../record/trace.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {openStateDb} from '../store/state-db.ts'
import {NOT_AT_HAND} from '../sync/quarantine.ts'
import {does, type Invocation} from './command.ts'
import {apart, figure, quoteForShell, type Text, tableOf} from './table.ts'

export const commands = {
  trace: does(
    async (
      {config, options: {field, asOf}, world}: Invocation<{field?: string; asOf?: string}>,
      traced: string,
    ) => {
      if (!isFigure(traced)) {
        using stateDb = openStateDb(dataFolderAt(config.dataDir).stateDb)
        const entry = listLinesOf(stateDb, traced)
        const deal_id = entry[0]?.deal_id ?? traced
        return {deal_id, entry, versions: await traceDeal(config, deal_id, {field, asOf}, world)}
      }
      if (field === undefined && asOf === undefined) return traceFigure(config, traced)
      throw newError('USAGE', `Figure '${traced}' with --field or --as-of: these are for a deal.`, {
        next: 'Leave them out: a figure is that of the current release.',
      })
    },
    (traced, {field}) =>
      'versions' in traced
        ? apart([...renderEntry(traced.entry), ...traced.versions.map((one) => renderTrace(one, field))])
        : renderFigure(traced),
  ),
  evidence: does(
    ({config, options, world}: Invocation<{from?: string; allFields?: boolean}>, of: string, to: string) =>
      writeEvidence(config, {of, to, ...options}, world),
    renderEvidence,
  ),
}

function renderFigure({figure: name, value, as_of, deals}: FigureTrace): Text {
  const rows = deals.map(
    ({deal_id: deal, status, loan_amount, property_value, ltv, last_changed_at: since}) => {
      const amounts = {loan_amount: figure(loan_amount), property_value: figure(property_value)}
      return {deal, status, ...amounts, ltv, 'unchanged since (UTC)': since}
    },
  )
  return [
    `${name} is ${value === null ? 'not known' : groupThousands(value)} as of ${as_of}: ${quantity(deals.length, 'deal')}.`,
    deals.length > 0 && [
      '',
      tableOf(rows),
      '',
      '`loantape trace <deal>` shows the record behind each, as the source sent it.',
    ],
  ]
}

function renderEntry(lines: ReturnType<typeof listLinesOf>): Text[] {
  if (!lines[0]) return []
  const {journal_no, deal_id, memo} = lines[0]
  // Each profile may have it on another date: its first open day then.
  const rows = lines.map(({profile, batch_id: batch, entry_date: date, debit, credit, ...line}) => {
    const account = `${line.account_code} ${line.account_name}`
    return {profile, batch, date, account, debit: figure(debit), credit: figure(credit)}
  })
  return [[`Journal entry ${journal_no} of ${deal_id}: ${memo}`, tableOf(rows)]]
}

function renderTrace(trace: Trace, field: string | undefined): Text {
  const {kind, source, business_date, observed_at, tape, line, request, sha256, ...said} = trace
  const {record, read, list_row} = said
  return [
    `${business_date}  ${kind} (${source})${field === undefined ? '' : `  ${field}: ${trace.value ?? 'not shown'}`}`,
    `  asked at ${observed_at}${request === null ? '' : `: GET ${request}`}`,
    tape === null
      ? `  what told it is ${NOT_AT_HAND}`
      : `  ${tape}, line ${line}${sha256 === null ? '' : `, sha256 ${sha256}`}`,
    record !== null && `  ${record}`,
    read !== null && `  as loantape read it:\n  ${read}`,
    list_row !== null && `  its list row has what its own page leaves out:\n  ${list_row}`,
  ]
}

function renderEvidence({dir, release_id, batch_id, tapes, lines, answers, reduced}: EvidenceResult): Text {
  return [
    `Evidence of ${batch_id === null ? '' : `batch ${batch_id} of `}release ${release_id}: ${dir}`,
    `${quantity(lines, 'line')} of ${quantity(tapes, 'tape')}, ${quantity(answers, 'answer')}${reduced === 0 ? ' as received' : `, ${reduced} of them translated by source.json or without what the contract does not know`}. It holds deals in plain text: give it to nobody else.`,
    `\`python3 ${quoteForShell(`${dir}/check.py`)}\` checks it, on any machine.`,
  ]
}
