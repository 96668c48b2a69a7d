import {readdirSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {z} from 'zod'
import {backUp} from '../../src/pipeline/backup.ts'
import {openDatabase} from '../../src/warehouse/database.ts'
import {startTestServer} from '../source/test-server.ts'
import {createLab, type Lab, someDeals} from '../support/lab.ts'
import {rawJson} from '../support/raw-json.ts'

const DAY_1 = '2026-02-02T23:30:00-05:00'
const DAY_2 = '2026-02-03T23:30:00-05:00'
const PEOPLE = ['Querfeldein', 'ada.q@example.com', '+1 203 555 0187', '998-44']

let lab: Lab

beforeEach(async () => {
  lab = await createLab()
  lab.service.store.insert(someDeals(20))
})

afterEach(() => lab[Symbol.asyncDispose]())

/** Puts people into the records of an answer; the first of them cannot be read, either. */
function plant(records: Record<string, unknown>[]): void {
  const [name, email, phone, digits] = PEOPLE
  for (const record of records) {
    record.borrowers = [{last_name: name, email, phone, ssn_last_four: digits}]
    record.primary_borrower = {last_name: name, contact: {email, phone}}
  }
  const [first, second] = records
  if (first) first.loan_amount = {of: name}
  if (second) second.status = {name}
}

/** What a file holds, as text: of a database or a Parquet file every value. */
async function readText(path: string): Promise<string> {
  const bytes = readFileSync(path)
  if (!/\.(duckdb|parquet)$/.test(path)) return bytes.toString('latin1')
  await using db = await openDatabase(
    path.endsWith('.duckdb') ? {attach: [{path, alias: 'one', readOnly: true}]} : {},
  )
  const tables = path.endsWith('.parquet')
    ? [{name: `'${path}'`}]
    : await db.all(
        z.object({name: z.string()}),
        `select schema_name || '.' || table_name as name from duckdb_tables() where database_name = 'one'`,
      )
  const texts = [bytes.toString('latin1')]
  for (const {name} of tables) {
    const source = path.endsWith('.parquet') ? name : `one.${name}`
    const rows = await db.all(z.object({row: z.string()}), `select t::varchar as row from ${source} as t`)
    texts.push(...rows.map(({row}) => row))
  }
  return texts.join('\n')
}

test('no name, address, number or digit of people that stand in records of deals is in any file but the sealed tapes', async () => {
  lab.service.faults.add({
    match: {path: /^\/deals/},
    fault: {
      kind: 'mutate',
      change: (body) => {
        const {data} = body as {data: Record<string, unknown> | Record<string, unknown>[]}
        plant([data].flat())
        return body
      },
    },
  })
  await lab.sync(DAY_1, {config: {pageSize: 100}})
  await lab.sync(DAY_2, {config: {pageSize: 100}})
  for (const profile of ['csv', 'parquet']) expect((await lab.run(['export', profile])).code).toBe(0)
  expect((await lab.run(['quarantine', 'replay'])).code).toBe(0)
  const backup = join(lab.folder.root, '../backup')
  await backUp(lab.config, backup, lab.createWorld(DAY_2))

  const listed = await lab.run(['quarantine', 'list', '--json'])
  const [{quarantine_id: id}] = JSON.parse(listed.stdout).records
  const shown = JSON.parse((await lab.run(['quarantine', 'show', id, '--json'])).stdout)
  expect(shown.record).toContain(PEOPLE[0])
  for (const root of [lab.folder.root, backup]) {
    const files = readdirSync(root, {recursive: true, withFileTypes: true})
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name))
    expect(files.length).toBeGreaterThan(3)
    for (const file of files) {
      const text = await readText(file)
      for (const person of PEOPLE) expect(text.includes(person), `${person} in ${file}`).toBe(false)
    }
  }
})

test('a record in quarantine is shown with every digit of its numbers, as the source sent it', async () => {
  lab.service.faults.add({
    match: {path: /^\/deals\?/},
    fault: {
      kind: 'mutate',
      change: (body) => {
        const [first] = (body as {data: Record<string, unknown>[]}).data
        if (first) first.loan_amount = rawJson('12345678901234567890.123456789012345678901')
        return body
      },
    },
  })
  await lab.walk(DAY_1, {config: {detail: 'off'}})
  const listed = await lab.run(['quarantine', 'list', '--json'])
  const [{quarantine_id: id}] = JSON.parse(listed.stdout).records
  for (const form of [[], ['--json']]) {
    const {stdout} = await lab.run(['quarantine', 'show', id, ...form])
    const text = form.length > 0 ? JSON.parse(stdout).record : stdout
    expect(text).toContain('"loan_amount":12345678901234567890.123456789012345678901,')
  }
})

test('a record in quarantine that nests deeper than calls can is shown as it came', async () => {
  const record = `{"id": "deep", "loan_amount": ${'['.repeat(9000)}${']'.repeat(9000)}}`
  const deep = `{"data": [${record}], "has_more": false}`
  await using server = await startTestServer((_request, response) => {
    response.writeHead(200, {'content-type': 'application/json'}).end(deep)
  })
  await lab.walk(DAY_1, {config: {detail: 'off', baseUrl: server.url}})
  const {records} = JSON.parse((await lab.run(['quarantine', 'list', '--json'])).stdout)
  for (const form of [[], ['--json']]) {
    const {code, stdout} = await lab.run(['quarantine', 'show', records[0].quarantine_id, ...form])
    expect(code).toBe(0)
    expect(form.length > 0 ? JSON.parse(stdout).record : stdout).toContain(record)
  }
})
