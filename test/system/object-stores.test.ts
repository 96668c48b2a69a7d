import {mkdirSync, readdirSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {openDatabase} from '../../src/store/database.ts'
import {someDeals, startProcess} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'

const CACHE = join(import.meta.dirname, '../../node_modules/.cache')
const PYTHON = join(CACHE, 'python/bin/python3')
const STORES = join(import.meta.dirname, 'object-stores.py')

const lab = await useLab({deals: someDeals(40)})
const at = (name: string) => join(lab.folder.root, '..', name)

async function run(args: string[], expected = 0): Promise<string> {
  const settings = {LOANTAPE_TARGETS_FILE: at('targets.json'), LOANTAPE_DETAIL: 'off'}
  const {code, stdout, stderr} = await lab.start(args, settings).ended
  expect(code, `${args.join(' ')}: ${stderr}${stdout}`).toBe(expected)
  return stdout + stderr
}

test('a bucket and a container take batches that pandas and DuckDB read by month, and backups that come back', async () => {
  const azurite = [join(CACHE, 'azurite/node_modules/.bin/azurite-blob'), '--skipApiVersionCheck']
  const where = ['--inMemoryPersistence', '--blobPort', '0']
  using blobs = startProcess([process.execPath, ...azurite, ...where], {})
  const port = await until(() => /listens on .*:(\d+)/.exec(blobs.printed().stdout)?.[1])
  using stores = startProcess([PYTHON, STORES, 'serve', port], {})
  const told = await until(() => /^\{.*\}$/m.exec(stores.printed().stdout)?.[0])
  const {endpoint, id, secret, url, sas} = JSON.parse(told)
  const read = async (folder: string) => {
    const args = [PYTHON, STORES, 'read', told, folder, at('read')]
    const {code, stdout, stderr} = await startProcess(args, {}).ended
    expect(code, stderr).toBe(0)
    return JSON.parse(stdout)
  }
  for (const [name, content] of Object.entries({secret, sas, wrong: 'x'})) writeFileSync(at(name), content)
  const bucket = {kind: 's3', bucket: 'lender-batches', region: 'eu-west-1', endpoint, access_key_id: id}
  const targets = {
    lake: {...bucket, secret_key_file: at('secret')},
    // As Google Cloud Storage requires.
    google: {...bucket, region: 'auto', path: 'google', secret_key_file: at('secret')},
    blobs: {kind: 'azure', url, sas_file: at('sas')},
    stranger: {...bucket, secret_key_file: at('wrong')},
    guest: {kind: 'azure', url, sas_file: at('wrong')},
  }
  writeFileSync(at('targets.json'), JSON.stringify(targets))
  await run(['sync'])

  const words = ['export', 'parquet', '--partition', 'month', '--table', 'core.deal', 'core.borrower']
  expect(await run([...words, '--deliver', 'stranger'], 5)).toMatch(/403 \w*Signature\w*/)
  expect(await run([...words, '--deliver', 'guest'], 5)).toContain('403 ')
  await run([...words, '--deliver', 'lake', 'google', 'blobs'])
  const [batch] = readdirSync(join(lab.folder.exports, 'parquet'))
  const monthly = `select strftime(created_on, '%Y-%m') as month, sum(loan_amount)::varchar as amount from core.deal group by 1`
  const {rows} = JSON.parse(await run(['query', monthly, '--json']))
  const expected = Object.fromEntries(rows.map(({month, amount}: Record<string, string>) => [month, amount]))
  expect(await read(`parquet/${batch}`)).toEqual({s3: expected, azure: expected})
  await using db = await openDatabase({})
  for (const kind of ['s3', 'azure']) {
    const files = `'${at('read')}/${kind}/core.deal/*/*.parquet'`
    const found = await db.all(
      z.object({month: z.string(), amount: z.string()}),
      `select month, sum(loan_amount)::varchar as amount from read_parquet(${files}, hive_partitioning = true) group by month`,
    )
    expect(Object.fromEntries(found.map(({month, amount}) => [month, amount]))).toEqual(expected)
  }

  mkdirSync(at('backups'))
  const sent = await run(['backup', at('backups/first'), '--deliver', 'lake', 'blobs'])
  const [, folder = ''] = /below (backup\S+)/.exec(sent) ?? []
  await read(folder)
  for (const kind of ['s3', 'azure'])
    expect(await run(['verify', '--backup', at(`read/${kind}`)])).toContain('has the MAC')
})
