import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {expect, test} from 'vitest'
import {untilPrinted} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {expectRefused, readJson} from './outcome.ts'

const lab = await useLab()

test('the local service is filled whole or not at all, prints its address, accepts only its key, and ends on SIGTERM', async () => {
  const db = join(lab.folder.root, '..', 'filled.db')
  await lab.run(['service', 'keys', 'create', 'CRM', '--db', db])
  using kept = new DatabaseSync(db)
  kept.exec("create trigger full before insert on borrower begin select raise(abort, 'disk is full'); end")
  const filled = ['service', '--deals', '5', '--db', db, '--json']
  await expectRefused(lab.run(filled), 'DISK_FULL', [], 1)
  kept.exec('drop trigger full')
  using service = lab.start(filled)
  const {url, api_key, ...rest} = await untilPrinted(service)
  expect(rest).toEqual({})
  expect(api_key).toMatch(/^sk_test_/)

  // No connections are kept alive: one side may close them just as the other sends on them.
  const list = (path: string, key: string) =>
    fetch(`${url}/deals${path}`, {headers: {authorization: `Bearer ${key}`, connection: 'close'}})
  expect((await list('?limit=3', 'sk_test_other')).status).toBe(401)
  const deals = (await (await list('?limit=3', api_key)).json()) as {data: [{id: string}]}
  expect(deals).toMatchObject({has_more: true, data: [{}, {}, {}]})
  const [{id}] = deals.data
  const borrowers = (await (await list(`/${id}/borrowers`, api_key)).json()) as {data: {deal_id: string}[]}
  expect(new Set(borrowers.data.map(({deal_id}) => deal_id))).toEqual(new Set([id]))

  await expectRefused(lab.run(['service', '--port', new URL(url).port, '--json']), 'SERVICE_LISTEN')

  service.process.kill('SIGTERM')
  expect(await service.ended).toMatchObject({code: 0, signal: null})
})

test('keys are created, listed and revoked by command, and a running service obeys', async () => {
  const db = join(lab.folder.root, '..', 'service.db')
  using service = lab.start(['service', '--deals', '3', '--no-links', '--db', db, '--json'])
  const {url} = await untilPrinted(service)
  const statusOf = async (key: unknown): Promise<number> =>
    (await fetch(`${url}/deals`, {headers: {authorization: `Bearer ${key}`}})).status

  const list = ['service', 'keys', 'list', '--db', db]
  expect((await lab.run(list)).stdout).toBe('No key has been created here.\n')
  const create = ['service', 'keys', 'create', 'CRM', '--live', '--scope', 'read', '--db', db, '--json']
  const made = readJson(await lab.run(create))
  const api_key = expect.stringMatching(/^sk_live_/)
  expect(made).toEqual({id: expect.any(String), api_key, scopes: ['read']})
  expect(await statusOf(made.api_key)).toBe(200)
  using kept = new DatabaseSync(db)
  expect(kept.prepare('select count(*) as deals from deal').get()).toEqual({deals: 3})
  expect(kept.prepare('select count(*) as borrowers from borrower').get()).toEqual({borrowers: 0})

  const listed = await lab.run(list)
  expect(listed.stdout).toMatch(/CRM\s+sk_live_\w{12}\s+read/)
  expect(listed.stdout).not.toContain(String(made.api_key))

  const revoke = ['service', 'keys', 'revoke', String(made.id), '--db', db, '--json']
  expect(readJson(await lab.run(revoke))).toEqual({id: made.id, revoked: true})
  expect(await statusOf(made.api_key)).toBe(401)
  await expectRefused(lab.run(revoke), 'UNKNOWN_NAME')
})
