import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {createFolder} from '../support/data.ts'
import {startProcess} from '../support/lab.ts'
import {API_KEY, insertDeals, startTestService} from './client.ts'

test('the curl commands of docs/service.md run as written', async () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/service.md'), 'utf8')
  const script = /^```sh curl\n(.*?)^```$/ms.exec(page)?.[1] ?? ''
  await using service = await startTestService({webhooks: {allowPrivate: true}})
  insertDeals(service, 3)
  using data = createFolder()
  const {root: folder} = data.folder

  const env = {BASE_URL: service.url, API_KEY}
  using shell = startProcess(['sh', '-c', script], env, folder)
  const {code, stdout, stderr} = await shell.ended
  expect([code, stderr]).toEqual([0, ''])
  expect(stdout).toContain('Appraised at 500,000.')
  expect(stdout).toContain('"status":"underwriting"')
  expect(stdout).toContain('"status":"completed"')
  // As a whole number: an id may contain these digits by chance.
  expect(stdout).not.toMatch(/\b6789\b/)
  expect(service.store.count()).toBe(3)

  const asked = service.requests.entries.map(
    ({method, path}) => `${method} ${path.replace(/_[0-9a-f]{20}/g, '_')}`,
  )
  expect(asked).toHaveLength(script.match(/^ *(?:\w+=\$\()?curl /gm)?.length ?? 0)
  expect(asked.at(-1)).toBe('DELETE /deals/deal_')
})
