import {writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {readTargets} from '../../src/export/delivery-target.ts'
import {createFolder, type TestFolder} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'

let data: TestFolder

beforeAll(() => {
  data = createFolder()
})

afterAll(() => data[Symbol.dispose]())

const lake = {kind: 'http', url: 'https://lake.example/in'}
const bank = {
  kind: 'sftp',
  host: 'sftp.bank.example',
  user: 'lender',
  path: '/in',
  host_key: `SHA256:${'A'.repeat(43)}`,
}

function write(content: unknown): string {
  const path = join(data.folder.root, 'targets.json')
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content))
  return path
}

const read = async (content: unknown) => readTargets({targetsFile: write(content)})

test.each([
  ['that is not JSON', '{', 'expected JSON'],
  ['of an unknown kind', {a: {kind: 'ftp'}}, 'a.kind'],
  ['without a host key', {a: {...bank, host_key: undefined}}, 'a.host_key'],
  ['with the password itself', {a: {...bank, password: 'hush'}}, 'password'],
  [
    'whose URL has a query',
    {a: {...lake, url: 'https://lake.example/in?sig=hush'}},
    'a.url: expected no query',
  ],
  [
    'whose URL has a password',
    {a: {...lake, url: 'https://me:hush@lake.example'}},
    'a.url: expected no query',
  ],
  ['with an invalid URL', {a: {...lake, url: 'lake'}}, 'a.url: expected an http or https URL'],
])('targets %s are refused by field, without their values', async (_, content, words) => {
  const failure = await failureOf(read(content))
  expect(failure).toMatchObject({code: 'TARGETS_INVALID', exitCode: 2})
  expect(failure.message).toContain(words)
  expect(failure.message).not.toContain('hush')
})
