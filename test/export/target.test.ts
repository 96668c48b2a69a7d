import {writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {placeOf, readTargets} from '../../src/export/delivery-target.ts'
import {createFolder} from '../support/data.ts'
import {expectFailure, useShared} from '../support/set-up.ts'

const lake = {kind: 'http', url: 'https://lake.example/in'}
const bank = {
  ...{kind: 'sftp', host: 'sftp.bank.example', user: 'lender', path: '/in'},
  host_key: `SHA256:${'A'.repeat(43)}`,
}
const bucket = {kind: 's3', bucket: 'lake', region: 'auto', access_key_id: 'x', secret_key_file: 'x'}
const container = {kind: 'azure', url: 'https://lender.blob.core.windows.net/', sas_file: 'x'}

const data = await useShared(createFolder())
const targetsFile = join(data.folder.root, 'targets.json')

/** Reads targets, or only those of these names, from a file. */
async function readFrom(targets: object | string, names?: string[]) {
  writeFileSync(targetsFile, typeof targets === 'string' ? targets : JSON.stringify(targets))
  return readTargets({targetsFile}, names)
}

test.each<[what: string, target: object, words: string]>([
  ['an unknown kind', {kind: 'ftp'}, 'a.kind'],
  ['no host key', {...bank, host_key: undefined}, 'a.host_key'],
  ['the password itself', {...bank, password: 'hush'}, 'password'],
  ['a query', {...lake, url: 'https://lake.example/in?sig=hush'}, 'a.url: expected no query'],
  ['a fragment', {...lake, url: 'https://lake.example/in#hush'}, 'a.url: expected no query'],
  ['a password in a URL', {...lake, url: 'https://me:hush@lake.example'}, 'a.url: expected no query'],
  ['no bucket', {...bucket, bucket: 'A b'}, 'a.bucket'],
  ['a path that leads out of the bucket', {...bucket, path: 'in/..'}, "a.path: expected no '.' or '..'"],
  ['no container', container, 'a.url: expected the URL of a container'],
  ['an invalid URL', {...lake, url: 'lake'}, 'a.url: expected an http or https URL'],
])('%s is refused by field, without its value', async (_, target, words) => {
  expect(await expectFailure(readFrom({a: target}), 'TARGETS_INVALID', words)).not.toContain('hush')
})

test('text that is not JSON is refused, and so is a name that every object has something of', async () => {
  await expectFailure(readFrom('{'), 'TARGETS_INVALID', 'expected JSON')
  await expectFailure(readFrom({lake}, ['constructor']), 'UNKNOWN_NAME')
})

test('a place that is written in another way is the same one, which gets nothing twice', async () => {
  for (const [one, other] of [
    [lake, {...lake, url: `${lake.url}//`}],
    [lake, {...lake, url: 'HTTPS://Lake.example:443/new/../in'}],
    [bank, {...bank, port: 22, path: '/out/.././in/', host: 'SFTP.bank.example'}],
    [
      {...bucket, path: 'in/new'},
      {...bucket, path: '/in//new/'},
    ],
  ]) {
    const [place, same] = (await readFrom({one, other})).map(({target}) => placeOf(target))
    expect(same).toBe(place)
  }
})
