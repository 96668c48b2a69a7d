import {cpSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {test} from 'vitest'
import {DEFAULT_MAPPING} from '../../src/accounting/mapping.ts'
import {BOOK_TABLES, openBooks, setAccounts} from '../support/books.ts'
import {runCommand} from '../support/command.ts'
import {expectGolden} from '../support/golden.ts'
import {writeJobFile} from '../support/jobs.ts'
import {someDeals} from '../support/lab.ts'
import {changeRecords, useLab, useShared} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {receiveEvents} from '../support/webhooks.ts'

/** Collects what commands print at a terminal of 120 columns; what differs from run to run is masked. */
function openTranscript(root: string, settings: Record<string, string>) {
  const env = {...settings, LOANTAPE_LOG_LEVEL: 'error'}
  let told = ''
  return {
    /** Runs command lines, with the business clock at `now`; a word with blanks stands in quotes. */
    async say(now: string, ...lines: string[]) {
      for (const line of lines) {
        const words = [...line.matchAll(/'([^']*)'|\S+/g)].map(([word, quoted]) => quoted ?? word)
        const at = {select: BOOK_TABLES, width: 120}
        const ended = await runCommand([...words, '--who', 'us'], {...env, LOANTAPE_NOW: now}, at)
        const exit = ended.code === 0 ? '' : `exit ${ended.code}\n`
        told += `$ loantape ${line}\n${ended.stdout}${ended.stderr}${exit}\n`
      }
    },
    text: () =>
      told
        .replaceAll(root, '…')
        .replaceAll(/(?<!\d)(?!2026-0[123])\d{4}-?\d\d-?\d\dT[\d:.]+Z/g, (at) => at.replaceAll(/\d/g, '#'))
        .replaceAll(/(?<=sk_test_)\w+|(?<=w_)\d+|(?<=Z-)\w{13}|[\da-f]{12,}/g, (id) => '#'.repeat(id.length))
        .replaceAll(/[\d.,]+(?= MB)|(?<=^(Models|Next slot|✓ models)\b).*|(?<=127\.0\.0\.1:)\d+/gm, '#'),
  }
}

const lab = await useLab({tables: BOOK_TABLES, deals: someDeals(4)})
const books = await useShared(openBooks())

test('what commands tell people about a lender', async () => {
  const root = join(lab.folder.root, '..')
  const at = (name: string) => join(root, name)
  const env = {...lab.env, LOANTAPE_TARGETS_FILE: at('targets.json'), LOANTAPE_JOBS_DIR: at('jobs')}
  for (const name of ['inbox', 'jobs']) mkdirSync(at(name))
  writeFileSync(at('targets.json'), JSON.stringify({share: {kind: 'folder', path: at('inbox')}}))
  writeJobFile(at('jobs'), 'nightly', {
    steps: [
      {do: 'sync'},
      {do: 'apply_events'},
      {do: 'ingest_rates'},
      {do: 'export', profiles: ['csv'], tables: ['core.deal']},
      {do: 'deliver', targets: ['share']},
      {do: 'backup', to: at('backups'), kept: 2, deliver: ['share']},
      {do: 'restore_drill', from: at('backups')},
      {do: 'prune'},
    ],
  })
  writeJobFile(at('jobs'), 'month-end', {steps: [{do: 'close_period', businessDay: 3}, {do: 'build'}]})
  const {say, text} = openTranscript(root, env)

  const first = '2026-02-26T23:30:00-05:00'
  await say(first, 'verify', 'upgrade-check', 'events apply', 'note list', 'run nightly', 'period list')
  await say(first, 'run month-end', 'accounting init')
  setAccounts(lab.folder)
  lab.service.store.update('deal_000001', {status: 'funded'})
  changeRecords(lab, '/deals?', (page) => {
    page[2]!.loan_amount = 'much'
  })
  const second = '2026-02-28T23:30:00-05:00'
  // Backups are named by the second, which this night must not share with the last.
  const lastNight = Math.floor(Date.now() / 1000)
  await until(() => Math.floor(Date.now() / 1000) > lastNight)
  await say(second, 'run nightly', 'quarantine list', 'quarantine reasons')
  const {records} = JSON.parse((await lab.run(['quarantine', 'list', '--json'])).stdout)
  await say(second, `quarantine show ${records[0].quarantine_id}`, 'quarantine replay')

  lab.service.store.update('deal_000004', {status: 'funded'})
  receiveEvents(lab.folder, 'deal_000004')
  await say('2026-03-01T09:00:00-05:00', 'events apply')
  const third = '2026-03-02T23:30:00-05:00'
  const both = 'export xero csv --period 2026-02 --table core.deal --deliver share'
  await say(third, 'sync', 'period list', 'export xero --period 2026-02 --preview', both, both)
  const [batch] = readdirSync(join(lab.folder.exports, 'xero'))
  await say(third, `export --redeliver ${batch} --deliver share`, `export --reissue ${batch}`)

  const fourth = '2026-03-04T23:30:00-05:00'
  await say(fourth, 'run month-end', 'run month-end', 'period list')
  await say(fourth, "period reopen 2026-02 --why 'a late fee'", 'period close 2026-02 --why again')
  await say(fourth, 'note add --day 2026-02-28 --text end', 'note add --deal deal_000001 --text late')
  await say(fourth, "note add --replaces 1 --text 'the end'", 'note withdraw 2', 'note list')
  await say(fourth, `evidence current ${at('evidence')}`, `evidence ${batch} '${at('of batch')}'`)
  await say(fourth, `backup ${at('saved')} --deliver share`, `verify --backup ${at('saved')}`)
  await say(fourth, 'verify --rebuild', 'rebuild', 'prune --dry-run', 'trace deal_000001')
  const keys = `--db ${at('keys.db')}`
  await say(fourth, `service keys create CRM ${keys}`, `service keys list ${keys}`)
  const listed = await lab.run(['service', 'keys', 'list', '--db', at('keys.db'), '--json'])
  await say(fourth, `service keys revoke ${JSON.parse(listed.stdout).keys[0].id} ${keys}`)
  await say(fourth, 'doctor')
  rmSync(lab.folder.current)
  symlinkSync('releases/none', lab.folder.current)
  await say(fourth, 'doctor', 'verify', 'query 1')
  expectGolden('cli/lender.txt', text())
})

test('what commands tell people about books that a recovery left behind', async () => {
  const {warehouse} = books.folder
  const {say, text} = openTranscript(books.folder.root, {LOANTAPE_DATA_DIR: books.folder.root})
  const walk = (day: string, [status, amount]: [string, number], other: string) =>
    books.walk(day, {a: {status, loan_amount: amount}, b: {status: other, loan_amount: 20.5}})
  await walk('2026-01-30', ['draft', 10], 'draft')
  cpSync(warehouse, `${warehouse}-kept`)
  await walk('2026-01-31', ['funded', 10], 'funded')
  await books.export('xero', '2026-01', '2026-02-01')
  await say('2026-02-01T17:00:00Z', 'period list')
  cpSync(`${warehouse}-kept`, warehouse)
  rmSync(`${warehouse}-kept`)
  await walk('2026-02-01', ['funded', 12_345], 'draft')
  const now = '2026-02-02T17:00:00Z'
  await say(now, 'status', 'period list', 'period true-up')
  await say(now, 'period true-up --issue --why recovered', 'period true-up')
  await say(now, 'period close 2026-01', 'period list')
  books.map({...DEFAULT_MAPPING, receivable: {'*': {code: '1201', name: 'Loans'}}})
  await say(now, 'period remap --why moved', 'period remap', 'build', 'period list', 'status')
  expectGolden('cli/recovered.txt', text())
})
