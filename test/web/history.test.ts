import {readFileSync, writeFileSync} from 'node:fs'
import {expect, test} from 'vitest'
import {DAY_1, someDeals} from '../support/lab.ts'
import {changeRecords, useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {listProcesses, PAGE_TABLES, serveLab} from './side.ts'

const DIGITS = '12345678901234567890'
const NOW = '2026-02-03T12:00:00-05:00'

/** Every record has a 20-digit number, and one has a bad amount; the clock of each night is stopped. */
const lab = await useLab({tables: PAGE_TABLES, deals: someDeals(30)})
const servicer = (JSON as unknown as {rawJSON(text: string): unknown}).rawJSON(DIGITS)
changeRecords(lab, '/deals', (deals) => {
  for (const deal of deals)
    Object.assign(deal, {servicer, ...(deal.id === 'deal_000030' && {loan_amount: 'much'})})
})
await lab.sync(DAY_1)
const side = await serveLab(lab, {now: NOW, world: lab.createWorld(NOW)})

/** Returns the texts that a page shows as received. */
async function readReceived(path: string): Promise<string[]> {
  const page = await side.read(path)
  const shown = [...page.matchAll(/<pre class="received" tabindex="0">(.*?)<\/pre>/gs)]
  return shown.map(([, text = '']) => text.replaceAll('&quot;', '"'))
}

test('a record is shown byte for byte on the page and by the command', async () => {
  const {stdout} = await lab.run(['trace', 'deal_000001', '--json'])
  const [{record, source}] = JSON.parse(stdout).versions
  expect(source).toBe('detail')
  expect(record).toContain(`"loan_program":"bridge_30yr"`)
  expect(record).toContain(`"servicer":${DIGITS}`)
  expect(await readReceived('/deals/deal_000001/received')).toEqual([record])
  const [{quarantine_id: id}] = JSON.parse((await lab.run(['quarantine', 'list', '--json'])).stdout).records
  const bad = JSON.parse((await lab.run(['quarantine', 'show', id, '--json'])).stdout).record
  expect(bad).toContain(`"loan_amount":"much"`)
  expect(bad).toContain(`"servicer":${DIGITS}`)
  expect(await readReceived(`/quarantine/${id}`)).toEqual([bad])
  expect(await side.readText(`/quarantine/${id}`)).toContain('observed at 2026-02-02 23:30:00 EST')
  for (const path of ['/deals/deal_x/received', '/quarantine/q_x'])
    expect((await side.get(path)).status).toBe(404)
})

/** Lists the processes that read history for this one. */
const listReaders = () => listProcesses('history-questions.ts', process.pid)

test('one process without secrets answers every question about history; another replaces it, and none is left', async () => {
  const before = listReaders()
  await using own = await serveLab(lab, {now: NOW, world: lab.createWorld(NOW)})
  const askAll = async () => {
    for (const path of ['/books', '/quarantine', '/deals/deal_000001/received', '/'])
      expect((await own.get(path)).status, path).toBe(200)
  }
  const listOwn = () => listReaders().filter((pid) => !before.includes(pid))
  await askAll()
  const [first = '', ...more] = listOwn()
  expect(more).toEqual([])
  const names = readFileSync(`/proc/${first}/environ`, 'utf8').split('\0')
  expect(names.filter((line) => /^(HOME|PATH|LOANTAPE_\w+)=/.test(line))).toEqual([])
  await askAll()
  expect(listOwn()).toEqual([first])
  process.kill(Number(first), 'SIGKILL')
  await until(() => listOwn().length === 0)
  await askAll()
  expect(listOwn()).toHaveLength(1)
  await own[Symbol.asyncDispose]()
  await until(() => listOwn().length === 0)
})

test('under another key, the page and the command do not say that a tape is gone', async () => {
  const file = lab.env.LOANTAPE_TAPE_KEY_FILE ?? ''
  const key = readFileSync(file)
  writeFileSync(file, `${'0'.repeat(64)}\n`)
  const words = /not at hand: .*sealed with another key/
  expect((await lab.run(['trace', 'deal_000001'])).stdout).toMatch(words)
  expect(await side.readText('/deals/deal_000001/received')).toMatch(words)
  writeFileSync(file, key)
})
