import {writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {placeOf, readTargets} from '../../src/export/delivery-target.ts'
import {createFolder} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'
import {useShared} from '../support/set-up.ts'

const lake = {kind: 'http', url: 'https://lake.example/in'}
const bank = {
  kind: 'sftp',
  host: 'sftp.bank.example',
  user: 'lender',
  path: '/in',
  host_key: `SHA256:${'A'.repeat(43)}`,
}

const refused: [what: string, content: unknown, words: string][] = [
  ['text that is not JSON', '{', 'expected JSON'],
  ['an unknown kind', {a: {kind: 'ftp'}}, 'a.kind'],
  ['no host key', {a: {...bank, host_key: undefined}}, 'a.host_key'],
  ['the password itself', {a: {...bank, password: 'hush'}}, 'password'],
  ['a query', {a: {...lake, url: 'https://lake.example/in?sig=hush'}}, 'a.url: expected no query'],
  ['a fragment', {a: {...lake, url: 'https://lake.example/in#hush'}}, 'a.url: expected no query'],
  ['a password in a URL', {a: {...lake, url: 'https://me:hush@lake.example'}}, 'a.url: expected no query'],
  [
    'no bucket',
    {a: {kind: 's3', bucket: 'A b', region: 'us-east-1', access_key_id: 'x', secret_key_file: 'x'}},
    'a.bucket',
  ],
  [
    'a path that leads out of the bucket',
    {
      a: {
        kind: 's3',
        bucket: 'lake',
        region: 'auto',
        path: 'in/..',
        access_key_id: 'x',
        secret_key_file: 'x',
      },
    },
    "a.path: expected no '.' or '..'",
  ],
  [
    'no container',
    {a: {kind: 'azure', url: 'https://lender.blob.core.windows.net/', sas_file: 'x'}},
    'a.url: expected the URL of a container',
  ],
  ['an invalid URL', {a: {...lake, url: 'lake'}}, 'a.url: expected an http or https URL'],
]

const data = await useShared(createFolder())
const targetsFile = join(data.folder.root, 'targets.json')

test('targets that are wrong are refused by field, without their values, and so is a name that every object has something of', async () => {
  for (const [what, content, words] of refused) {
    writeFileSync(targetsFile, typeof content === 'string' ? content : JSON.stringify(content))
    const failure = await failureOf((async () => readTargets({targetsFile}))())
    expect(failure, what).toMatchObject({code: 'TARGETS_INVALID', exitCode: 2})
    expect(failure.message).toContain(words)
    expect(failure.message).not.toContain('hush')
  }
  writeFileSync(targetsFile, JSON.stringify({lake}))
  const failure = await failureOf((async () => readTargets({targetsFile}, ['constructor']))())
  expect(failure).toMatchObject({code: 'UNKNOWN_NAME'})
})

test('a place that is written in another way is the same one, which gets nothing twice', () => {
  const bucket = {kind: 's3', bucket: 'lake', region: 'auto', access_key_id: 'x', secret_key_file: 'x'}
  for (const [one, other] of [
    [lake, {...lake, url: `${lake.url}//`}],
    [lake, {...lake, url: 'HTTPS://Lake.example:443/new/../in'}],
    [bank, {...bank, port: 22, path: '/out/.././in/', host: 'SFTP.bank.example'}],
    [
      {...bucket, path: 'in/new'},
      {...bucket, path: '/in//new/'},
    ],
  ]) {
    writeFileSync(targetsFile, JSON.stringify({one, other}))
    const [place, same] = readTargets({targetsFile}).map(({target}) => placeOf(target))
    expect(same).toBe(place)
  }
})
