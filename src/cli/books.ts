import {z} from 'zod'
import type {Note} from '../accounting/acts.ts'
import {initAccounting} from '../accounting/mapping.ts'
import {ABOUT, listNotes, writeNote} from '../accounting/notes.ts'
import {closePeriod, listPeriods, remapPeriods, reopenPeriod} from '../books/close-period.ts'
import type {NotIssued} from '../books/standing.ts'
import {type TrueUpResult, trueUp} from '../books/true-up.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {groupThousands, quantity} from '../core/money.ts'
import {escapeLineEnds, expectOneOf} from '../core/text.ts'
import {listExportedProfiles, readJobs} from '../schedule/job.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {openRelease, requireRelease} from '../store/release.ts'
import {openStateDb} from '../store/state-db.ts'
import {does, type Invocation} from './command.ts'
import {figure, type Text, tableOf, tableOfTerms} from './table.ts'

export const commands = {
  'accounting init': does(
    ({config}) => initAccounting(config),
    ({file, programs}) => {
      const named =
        programs.length === 0 ? "'*' for every program" : `${programs.join(', ')} and '*' for all others`
      return `Wrote ${file}: ${named}. Text in angle brackets is a placeholder: nothing is exported or closed until you replace it with a code or name of your chart of accounts.`
    },
  ),
  'period list': does(
    async ({config, world}) => listPeriods(config, world, listExportedProfiles(readJobs(config))),
    ({periods, events, refused}) => [
      refused !== null && [refused, ''],
      tableOf(
        periods.map(({period, state, closed, last_day_walked_at}) => {
          return {period, state, last_day_walked_at, loans: closed?.loans, funded: figure(closed?.amount)}
        }),
      ),
      periods.map(({period, batches, not_issued}) => [
        batches.map(({profile, batch_id}) => `${period}: ${profile} batch ${batch_id}`),
        not_issued.map((open) => `${period}: not yet issued: ${renderNotIssued(open)}`),
      ]),
      events.map(
        ({period, action, at, who, why}) =>
          `${at} ${who}: ${action} ${period}${why === null ? '' : `: ${why}`}`,
      ),
    ],
  ),
  'period close': does(
    ({config, options: {why = null}, world}: PeriodCall, month: string) =>
      closePeriod(config, {period: month, why}, world),
    renderClosed,
  ),
  'period reopen': does(
    ({config, options: {why}, world}: Invocation<{why: string}>, month: string) =>
      reopenPeriod(config, {period: month, why}, world),
    ({period: month}) => `Reopened ${month}.`,
  ),
  'period remap': does(
    ({config, options: {why = null}, world}: PeriodCall) => remapPeriods(config, {why}, world),
    ({outcome, period: month}) =>
      outcome === 'unchanged'
        ? `The journal of ${month} already moves the balances.`
        : `The journal of ${month} moves the balances: run \`loantape build\`, then export it.`,
  ),
  'period true-up': does(
    ({config, options: {issue: isIssued = false, why = null}, world}: PeriodCall) =>
      trueUp(config, {isIssued, why}, world),
    renderTrueUp,
  ),
  'note list': does(
    ({config}) => {
      using stateDb = openStateDb(dataFolderAt(config.dataDir).stateDb)
      return {notes: listNotes(stateDb)}
    },
    ({notes}) => (notes.length > 0 ? notes.map(renderNote) : 'Nobody has noted anything.'),
  ),
  'note add': does(async ({config, options: {text = '', ...named}, world}: NoteCall) => {
    const [about, ...others] = ABOUT.filter((name) => named[name] !== undefined)
    const subject = (about && named[about]) ?? ''
    if (about === undefined || others.length > 0)
      throw newError('USAGE', 'Command line: expected one of --day, --deal, --limit and --replaces.')
    if (about === 'limit') await requireLimit(config, subject)
    return writeNote(config, {about, subject, text}, world)
  }, renderNote),
  'note withdraw': does(
    ({config, world}: NoteCall, subject: string) =>
      writeNote(config, {about: 'replaces', subject, text: null}, world),
    renderNote,
  ),
}

type NoteCall = Invocation<Partial<Record<'text' | (typeof ABOUT)[number], string>>>

/** A note about another name would stand nowhere. @throws ConfigError `UNKNOWN_NAME` */
async function requireLimit({dataDir}: Config, name: string): Promise<void> {
  await using db = await openRelease(requireRelease(dataFolderAt(dataDir)))
  const names = await db.column(z.string(), 'select distinct name from seed.limit order by name')
  if (names.includes(name)) return
  throw newError('UNKNOWN_NAME', `Limit '${name}' in --limit: ${expectOneOf(name, names)}.`)
}

function renderNote({note_no, about, subject, text, at, who, replaces}: Note): string {
  const before = replaces === null ? '' : ` in place of ${replaces}`
  const words =
    text === null ? `${at} ${who} withdrew note ${replaces}` : `${note_no}${before}: ${at} ${who}: ${text}`
  return escapeLineEnds(`${words} (${about} ${subject})`)
}

export function renderClosed(closed: Awaited<ReturnType<typeof closePeriod>>): Text {
  const now = closed.period
  const sayOpen = ({period: then, ...open}: NotIssued) =>
    `Not yet issued of ${then}: ${renderNotIssued(open)}. What became known of ${then} since its closing is now dated after ${now}: to date it in ${now}, reopen ${now}, export ${then}, close ${now} again.`
  return [
    `Closed ${closed.period}: ${quantity(closed.entries, 'entry')}, ${quantity(closed.loans, 'funded loan')}, ${groupThousands(closed.amount)} (release ${closed.release_id}). ${closed.last_day_walked_at === null ? 'No complete walk saw its last day; a later one did.' : `The last walk of its last day began at ${closed.last_day_walked_at}.`}`,
    tableOfTerms(closed.terms),
    warnOfQuarantine(closed.quarantine_waiting),
    closed.not_issued.map(sayOpen),
  ]
}

type PeriodCall = Invocation<{why?: string | null; issue?: boolean}>

/** `xero 3 entries, 1,234.56` */
export function renderNotIssued({profile, entries, amount}: Omit<NotIssued, 'period'>): string {
  return entries === null || amount === null
    ? `${profile} unknown until \`loantape build\` has read the accounts anew`
    : `${profile} ${quantity(entries, 'entry')}, ${groupThousands(amount)}`
}

export const warnOfQuarantine = (waiting: number) =>
  waiting > 0 &&
  `Quarantine: ${quantity(waiting, 'record')} ${waiting === 1 ? 'waits' : 'wait'}; \`loantape quarantine reasons\` shows ${waiting === 1 ? 'it' : 'them'}.`

/** Names batches that the record lacks but somebody may have imported. */
export const warnOfUnknown = (batches: readonly string[]) =>
  batches.length > 0 &&
  `Delete what your books imported of ${batches.join(', ')}: what ${batches.length === 1 ? 'it' : 'they'} held is issued again.`

function renderTrueUp({outcome, lost, given_up, profiles}: TrueUpResult): Text {
  if (outcome === 'unchanged')
    return [
      'The batches on record and the history agree: there is nothing to bring up to date.',
      warnOfUnknown(given_up),
    ]
  const differences = profiles.flatMap(({profile, differences: own}) =>
    own.map(({deal_id, entry_date, account_code, account_name, debit, credit}) => {
      const account = `${account_code} ${account_name}`
      return {profile, deal: deal_id, date: entry_date, account, debit: figure(debit), credit: figure(credit)}
    }),
  )
  return [
    `The history lacks the sources of: ${lost.length === 0 ? 'no batch that is named' : lost.join(', ')}.`,
    differences.length > 0 && ['', tableOf(differences), ''],
    profiles.map(({profile, deals, amount, batch}) => {
      const found = `${profile}: ${quantity(deals, 'deal')} booked from what the history lacks`
      const moved = `${groupThousands(amount)} to book`
      return batch
        ? `${found}; ${moved}: ${batch.dir}`
        : `${found}; ${amount === '0.00' ? 'their balances agree, so that there is nothing to import' : moved}.`
    }),
    outcome === 'issued'
      ? 'The books rest on this history now.'
      : 'Nothing was changed. `loantape period true-up --issue` issues this, and the books then rest on this history.',
    warnOfUnknown(given_up),
  ]
}
