import {JOURNAL_NAMES} from '../accounting/profiles.ts'
import {type JournalPreview, reissueBatch} from '../books/issue.ts'
import {type LoantapeError, newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import type {BatchResult} from '../export/batch.ts'
import type {DeliveryResult} from '../export/deliver-files.ts'
import {readTargets} from '../export/delivery-target.ts'
import {type Dialect, dialectSchema, wordOf} from '../export/dialect.ts'
import {type PublishResult, publishRelease} from '../export/publish.ts'
import {PROFILE_NAMES, TABLE_PROFILE_NAMES} from '../export/table-files.ts'
import {PUBLISH_TARGETS} from '../export/target.ts'
import {deliverBatches, type ExportRequest, exportRelease, previewExport, redeliverBatch} from '../outputs.ts'
import {does, type Invocation} from './command.ts'
import {figure, type Text, tableOf, tableOfTerms} from './table.ts'

export const commands = {
  export: does(exportFiles, renderExported),
  ...Object.fromEntries(
    PUBLISH_TARGETS.map((to) => [
      `publish ${to}`,
      does(
        ({config, options: {release, force}, world}: Invocation<{release?: string; force?: boolean}>) =>
          publishRelease(config, {to, releaseId: release, isForced: force ?? false}, world),
        renderPublished,
      ),
    ]),
  ),
}

type CliOptions = Pick<ExportRequest, 'asOf' | 'period' | 'withOpening' | 'partition'> &
  Partial<Dialect> & {
    release?: string
    table?: string[]
    reissue?: string
    deliver?: string[]
    redeliver?: string
    preview?: boolean
  }

const DIALECT = Object.keys(dialectSchema.shape) as (keyof Dialect)[]

interface Exported {
  batches?: readonly BatchResult[]
  deliveries?: readonly DeliveryResult[]
  previews?: readonly JournalPreview[]
}

async function exportFiles(
  {config, options, world}: Invocation<CliOptions>,
  profiles: string[],
): Promise<Exported> {
  requireOneSubject(profiles, options)
  if (options.preview) return {previews: await previewExport(config, readRequest(profiles, options), world)}
  const {reissue, redeliver, deliver: targets = []} = options
  if (redeliver !== undefined)
    return {deliveries: await redeliverBatch(config, {batchId: redeliver, targets}, world)}
  // Before a long export.
  readTargets(config, targets)
  const batches =
    reissue === undefined
      ? await exportRelease(config, {...readRequest(profiles, options), deliver: () => targets}, world)
      : reissueBatch(config, reissue, world)
  if (targets.length === 0) return {batches}
  return {batches, deliveries: await deliverBatches(config, {batches, targets}, world)}
}

function readRequest(profiles: string[], options: CliOptions): ExportRequest {
  const {table: tables, release: releaseId, asOf, period, withOpening, partition} = options
  const dialect = dialectSchema.safeParse(Object.fromEntries(DIALECT.map((name) => [name, options[name]])))
  const issue = dialect.error?.issues[0]
  if (issue) throw usageError(`--${wordOf(String(issue.path[0]))}: ${issue.message}`)
  return {profiles, tables, releaseId, asOf, period, withOpening, partition, dialect: dialect.data}
}

/** Also refuses options that would have no effect. */
function requireOneSubject(profiles: readonly string[], options: CliOptions): void {
  const isBatch = (options.reissue ?? options.redeliver) !== undefined
  if (isBatch && profiles.length > 0) throw usageError('expected no profile with --reissue or --redeliver')
  if (!isBatch && profiles.length === 0)
    throw usageError(`expected a profile (${PROFILE_NAMES.join(', ')}), --reissue or --redeliver`)
  const table = TABLE_PROFILE_NAMES.find((name) => profiles.includes(name))
  if (options.preview && table !== undefined)
    throw usageError(
      `--preview is for journals, which are issued once; ${table} comes out the same every time`,
    )
  const takers: (readonly [flag: string, isGiven: boolean, names: readonly string[]])[] = [
    ['--table', options.table !== undefined, TABLE_PROFILE_NAMES],
    ['--with-opening', options.withOpening ?? false, JOURNAL_NAMES],
    ...DIALECT.map((name) => [`--${wordOf(name)}`, options[name] !== undefined, ['csv']] as const),
    ['--partition', options.partition !== undefined, ['parquet']],
  ]
  for (const [flag, isGiven, names] of takers) {
    if (!isGiven || profiles.some((name) => names.includes(name))) continue
    throw usageError(`${flag} changes nothing here: expected it with ${names.join(', ')}`)
  }
}

function usageError(words: string): LoantapeError {
  return newError('USAGE', `Command line: ${words}.`)
}

export function renderExported({batches = [], deliveries = [], previews = []}: Exported): Text {
  return [batches.map(renderBatch), deliveries.map(renderDelivery), previews.map(renderPreview)]
}

function renderPreview({batch, accounts, files}: JournalPreview): Text {
  const {profile, period, batch_id, outcome} = batch
  if (outcome !== 'written') return renderBatch(batch)
  const rows = accounts.map(({account_code: account, account_name: name, lines, debit, credit}) => {
    return {account, name, lines, debit: figure(debit), credit: figure(credit)}
  })
  return [
    `${profile}: would issue batch ${batch_id} of ${period}, nothing was issued`,
    tableOfTerms(batch.terms),
    '',
    tableOf(rows),
    '',
    files.map(({name, head}) => `${name} begins:\n${head}`),
  ]
}

function renderDelivery({target, profile, batch_id, outcome, sent}: DeliveryResult): string {
  const words = outcome === 'unchanged' ? 'has everything already' : `took ${quantity(sent, 'file')}`
  return `${target}: ${words} of ${profile}/${batch_id}`
}

function renderBatch(batch: BatchResult): Text {
  const {profile, period, batch_id, outcome, because, files, rows, dir, terms, renamed = []} = batch
  const names = renamed.map(
    ({account_code: code, account_name: now, before}) =>
      `  account ${code} is '${now}' now, '${before}' before: right if renamed in ${profile}; if the name was wrong, give the account another code, too`,
  )
  if (outcome === 'left')
    return `${profile}: what is new from ${period} on is not issued; the next export makes up for it. ${because?.message}`
  const notes = [names, tableOfTerms(terms)]
  if (outcome === 'empty') return [`${profile}: nothing to book in ${period}`, notes]
  const words = {
    written: 'written',
    unchanged: period === undefined ? 'there already, byte for byte' : 'issued before, nothing new since',
  }[outcome]
  const head = `${profile}: batch ${batch_id}, ${quantity(files, 'file')}, ${quantity(rows, 'row')} ${words}`
  return [head, dir !== '' && `  ${dir}`, notes]
}

export function renderPublished({outcome, release_id, server, tables, rows, loaded}: PublishResult): string {
  if (outcome === 'unchanged') return `Release ${release_id} is already published at ${server}.`
  const sent =
    loaded === tables
      ? ''
      : ` ${quantity(loaded, 'table')} ${loaded === 1 ? 'was' : 'were'} sent, the others were there.`
  return `Release ${release_id} published at ${server}: ${quantity(tables, 'table')}, ${quantity(rows, 'row')}.${sent}`
}
